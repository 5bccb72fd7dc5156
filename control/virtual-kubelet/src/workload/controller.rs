//! Connects the plan of pods to the runtime.

use super::namespaces::Namespaces;
use super::plan::{EXISTS, Workload};
use crate::pod::status::Restarts;
use crate::settings::Settings;
use control_api::{NamespaceMap, ShadowPod, VirtualNode};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Key, Outcome, Plan, Queue, Registration,
    Request, Scope, WatchId,
};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// Plans the pods of the Node.
pub(crate) struct WorkloadController {
    settings: Settings,
    namespaces: Namespaces,
    /// Restarts of the pods, by name.
    restarts: BTreeMap<Key, Restarts>,
    /// Why the provider has refused ShadowPods, by the names of the pods.
    refusals: BTreeMap<Key, String>,
}

/// The item that plans the watches; pods have a namespace.
fn watches_item() -> Key {
    Key::cluster("")
}

impl WorkloadController {
    /// Creates the controller.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            namespaces: Namespaces::default(),
            restarts: BTreeMap::new(),
            refusals: BTreeMap::new(),
        }
    }

    /// Returns the pods in namespaces of this cluster, and those of which the provider has objects.
    fn items_in(&self, namespaces: &BTreeSet<String>, cache: &Cache) -> Vec<Key> {
        let local = cache.objects::<Pod>(&Cluster::Local);
        let provider = Cluster::remote(&self.settings.provider);
        let shadows = cache.objects::<ShadowPod>(&provider);
        let mut items = Vec::new();
        for namespace in namespaces {
            items.extend(local.within(namespace).map(|(key, _)| key.clone()));
            let remote = self.namespaces.remote(namespace);
            let shadows = remote.into_iter().flat_map(|remote| shadows.within(remote));
            items.extend(shadows.map(|(key, _)| Key::new(&**namespace, &*key.name)));
        }

        items
    }

    /// Returns the pod that an object of the provider is a counterpart of.
    fn of_remote(&self, key: &Key) -> Option<Key> {
        let namespace = self.namespaces.local(&key.namespace)?;
        Some(Key::new(namespace, &*key.name))
    }
}

impl Controller for WorkloadController {
    type Item = Key;
    const NAME: &'static str = "workload";
    const FIELD_MANAGER: &'static str = "workload.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let settings = &self.settings;
        let tenant = || Scope::Namespace(settings.tenant_namespace.clone());
        vec![
            Registration::whole::<Pod>(Scope::All)
                .node(&*settings.node)
                .verbs(&["patch", "delete"])
                .subresource("status", "patch"),
            Registration::whole::<Pod>(Scope::Planned),
            Registration::whole::<ShadowPod>(Scope::Planned),
            Registration::whole::<NamespaceMap>(tenant()).name(&*settings.provider),
            Registration::whole::<VirtualNode>(tenant()).name(&*settings.node),
        ]
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Key> {
        let object = change.object;
        if change.is::<NamespaceMap>() {
            let mut items = vec![watches_item()];
            items.extend(self.items_in(&changed_entries(change), cache));
            return items;
        }
        if change.is::<VirtualNode>() {
            let patch =
                |node: Option<&VirtualNode>| node.map(|it| it.spec.offloading_patch.clone());
            let is_same = patch(change.before()) == patch(change.after());
            let all = cache.objects::<Pod>(&Cluster::Local);
            return all
                .iter()
                .filter(|_| !is_same)
                .map(|(key, _)| key.clone())
                .collect();
        }
        match &object.cluster {
            Cluster::Local => {
                if change.entry().is_none() {
                    self.restarts.remove(&object.key);
                    self.refusals.remove(&object.key);
                }
                vec![object.key.clone()]
            }
            Cluster::Remote(_) => Vec::from_iter(self.of_remote(&object.key)),
        }
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<Key> {
        let remote = id.namespace.as_deref().unwrap_or_default();
        let local = self.namespaces.local(remote).map(str::to_owned);

        self.items_in(&local.into_iter().collect(), cache)
    }

    fn started(&mut self, _cache: &Cache) -> Vec<Key> {
        vec![watches_item()]
    }

    fn plan(&mut self, item: &Key, cache: &Cache, env: &mut Env<'_>) -> Plan<Key> {
        if *item == watches_item() {
            let map = cache.local::<NamespaceMap>(&self.settings.namespace_map());
            let after = Namespaces::new(map);
            let mut plan = Plan {
                watches: after.watches(&self.namespaces, &self.settings),
                ..Plan::default()
            };
            let changed = after.changed(&self.namespaces);
            self.namespaces = after;
            let items = self.items_in(&changed, cache).into_iter();
            plan.requeue = items
                .map(|item| (std::time::Duration::ZERO, item))
                .collect();
            return plan;
        }
        let workload = Workload {
            settings: &self.settings,
            namespaces: &self.namespaces,
            cache,
            key: item,
            refusal: self.refusals.get(item).map(String::as_str),
        };
        let restarts = self.restarts.entry(item.clone()).or_default();
        let plan = workload.plan(restarts, env);
        if cache.local::<Pod>(item).is_none() {
            self.restarts.remove(item);
        }

        plan
    }

    fn done(
        &mut self,
        item: &Key,
        request: &Request,
        outcome: &Outcome,
        _cache: &Cache,
    ) -> Vec<Key> {
        let Request::Write(write) = request else {
            return Vec::new();
        };
        let is_creation = matches!(write.action, Action::Create(_));
        if !is_creation {
            return Vec::new();
        }
        let refusal = match outcome {
            Outcome::Refused(status) => Some(format!(
                "the provider refuses the ShadowPod: {}",
                status.message
            )),
            // One of this Node would be in the watch.
            Outcome::AlreadyExists(_) => Some(EXISTS.to_owned()),
            Outcome::Stored(_) | Outcome::Answer(_) | Outcome::Gone => {
                self.refusals.remove(item);
                None
            }
            Outcome::Conflict(_)
            | Outcome::TimedOut
            | Outcome::Failed(_)
            | Outcome::Untrusted(_)
            | Outcome::NotLeader => None,
        };
        // The runtime plans the item again after a while, and then the Event is published.
        self.refusals
            .extend(refusal.map(|refusal| (item.clone(), refusal)));

        Vec::new()
    }

    fn queue(item: &Key) -> Queue {
        Queue(item.namespace.clone())
    }
}

/// Returns the namespaces of this cluster whose entries in the NamespaceMap differ before and after a change.
fn changed_entries(change: &Change<'_>) -> BTreeSet<String> {
    let states = [
        change.before::<NamespaceMap>(),
        change.after::<NamespaceMap>(),
    ];
    let entry = |map: Option<&NamespaceMap>, name: &str| {
        let desired = map.and_then(|it| it.spec.desired_mapping.get(name).cloned());
        let current = map.and_then(|it| it.status.as_ref()?.current_mapping.get(name).cloned());
        (desired, current)
    };
    let names = states.into_iter().flatten().flat_map(|map| {
        let current = map.status.iter().flat_map(|it| it.current_mapping.keys());
        map.spec.desired_mapping.keys().chain(current)
    });

    names
        .filter(|name| entry(states[0], name) != entry(states[1], name))
        .cloned()
        .collect()
}
