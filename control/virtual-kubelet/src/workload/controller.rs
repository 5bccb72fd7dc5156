//! Connects the plan of pods to the runtime.

use super::absences::Absences;
use super::addresses::Addresses;
use super::contests::Contests;
use super::delayed::Delayed;
use super::namespaces::{Namespaces, is_listed};
use super::offloading;
use super::plan::{EXISTS, Workload};
use super::steps::{Durations, Observed, Steps};
use super::unscheduled::Unscheduled;
use crate::kubeconfig::Shared;
use crate::pod::kept::{self, KeptShadowPod};
use crate::pod::status::{History, cut};
use crate::reflected::Reflected;
use crate::reflection::event::{self, EventSummary};
use crate::reflection::tokens::awaited::{self, Waiting, missing, pods_of};
use crate::reflection::tokens::settings::TokenSettings;
use crate::settings::{Settings, reserved};
use control_api::{NamespaceMap, NamespaceOffloading, ShadowPod, VirtualNode};
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Key, Outcome, Plan, Queue, Registration,
    Request, Resource, Scope, WatchId, Write,
};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Longest time for which a pod waits for its tokens, the root CA and the NamespaceOffloading. Without the first two, it waits for
/// its volumes at the provider; without the last one, the tolerations of its repatriation apply there, too.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Time for the lists of the provider's objects, after which a read shows why there are none.
const LISTING_MAX: Duration = Duration::from_secs(10);

/// Longest message of a refusal that is published, in bytes: that of an Event.
const REFUSAL_LEN_MAX: usize = 1024;

/// Plans the pods of the Node.
pub(crate) struct WorkloadController {
    settings: Settings,
    /// The user of the credentials for the provider.
    kubeconfig: Shared,
    /// Tokens that the provider must have before a pod starts, if pods have any.
    tokens: Option<TokenSettings>,
    namespaces: Namespaces,
    /// When pods began to wait for their tokens, by name.
    waiting: BTreeMap<Key, Instant>,
    /// When pods began to wait for the lists of namespaces of this cluster.
    unlisted: BTreeMap<String, Instant>,
    /// The remote pods of the pods, by name.
    histories: BTreeMap<Key, History>,
    /// Pods whose remote pod the provider does not have, by a read.
    gone: BTreeSet<Key>,
    /// Why the provider has refused ShadowPods or their changes, by the names of the pods.
    refusals: BTreeMap<Key, String>,
    absences: Absences,
    contests: Contests,
    unscheduled: Unscheduled,
    delayed: Delayed,
    addresses: Addresses,
    steps: Steps,
    reflected: Reflected,
}

/// The item that plans the watches; pods have a namespace.
fn watches_item() -> Key {
    Key::cluster("")
}

impl WorkloadController {
    /// Creates the controller. With `tokens`, pods wait until the provider has theirs.
    pub(crate) fn new(
        settings: Settings,
        kubeconfig: Shared,
        tokens: Option<TokenSettings>,
    ) -> Self {
        Self {
            settings,
            kubeconfig,
            tokens,
            namespaces: Namespaces::default(),
            waiting: BTreeMap::new(),
            unlisted: BTreeMap::new(),
            histories: BTreeMap::new(),
            gone: BTreeSet::new(),
            refusals: BTreeMap::new(),
            absences: Absences::default(),
            contests: Contests::default(),
            unscheduled: Unscheduled::default(),
            delayed: Delayed::default(),
            addresses: Addresses::default(),
            steps: Steps::default(),
            reflected: Reflected::default(),
        }
    }

    /// Counts what is reflected.
    pub(crate) fn counted(self, reflected: Reflected) -> Self {
        Self { reflected, ..self }
    }

    /// Measures the steps of pods.
    pub(crate) fn measured(self, durations: Durations) -> Self {
        let steps = Steps::new(durations);
        Self { steps, ..self }
    }

    /// Returns the pods in namespaces of this cluster, and those of which the provider has objects.
    fn items_in(&self, namespaces: &BTreeSet<String>, cache: &Cache) -> Vec<Key> {
        let local = cache.objects::<Pod>(&Cluster::Local);
        let provider = Cluster::remote(&self.settings.provider);
        let shadows = cache.objects::<KeptShadowPod>(&provider);
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

    /// Returns the pod that the provider does not create, by an Event. An Event that has expired changes nothing.
    fn of_event(&self, change: &Change<'_>) -> Vec<Key> {
        let event = change.after::<EventSummary>();
        let event = event.filter(|it| it.is_failed_creation());
        let remote = event.map(|it| Key::new(&*change.object.key.namespace, it.object()));

        Vec::from_iter(remote.and_then(|it| self.of_remote(&it)))
    }

    /// Returns the pods that may no longer wait after a change at the provider.
    fn of_awaited(&self, change: &Change<'_>) -> Vec<Key> {
        let waiting = self.tokens.as_ref().and_then(|it| pods_of(change, it));
        match waiting {
            Some(Waiting::Pod(remote)) => Vec::from_iter(self.of_remote(&remote)),
            Some(Waiting::Namespace(remote)) => {
                let local = self.namespaces.local(&remote);
                let is_in = |key: &&Key| Some(&*key.namespace) == local;
                self.waiting.keys().filter(is_in).cloned().collect()
            }
            None => Vec::new(),
        }
    }

    /// Takes the outcome of a request about a ShadowPod, which is repeated after a failure. Then the runtime plans the pod again,
    /// and its Event is published.
    fn take(&mut self, pod: &Key, outcome: &Outcome, refused: &str) {
        let refusal = match outcome {
            Outcome::Refused(status) => {
                format!("{refused}: {}", cut(&status.message, REFUSAL_LEN_MAX))
            }
            Outcome::Failed(reason) | Outcome::Untrusted(reason) => format!(
                "the request to the provider fails: {}",
                cut(reason, REFUSAL_LEN_MAX)
            ),
            Outcome::TimedOut => "the request to the provider timed out".to_owned(),
            // One of this Node would be in the watch.
            Outcome::AlreadyExists(_) => EXISTS.to_owned(),
            Outcome::Stored(_) | Outcome::Answer(_) | Outcome::Gone => {
                self.refusals.remove(pod);
                return;
            }
            Outcome::Conflict(_) | Outcome::NotLeader => return,
        };
        self.refusals.insert(pod.clone(), refusal);
    }

    /// Returns how long the pods of a namespace of this cluster still wait for the lists of the provider's objects.
    fn listing(&mut self, namespace: &str, cache: &Cache, now: Instant) -> Duration {
        let remote = self.namespaces.remote(namespace);
        if remote.is_none_or(|it| is_listed(&self.settings, it, cache)) {
            self.unlisted.remove(namespace);
            return Duration::ZERO;
        }
        let since = *self.unlisted.entry(namespace.to_owned()).or_insert(now);

        LISTING_MAX.saturating_sub(now.saturating_duration_since(since))
    }

    /// Returns the state of a pod, for the measurement of its steps.
    fn observed<'a>(&self, pod: &Key, cache: &'a Cache) -> Option<Observed<'a>> {
        Observed::find(&self.settings, &self.namespaces, pod, cache)
    }

    /// Forgets a pod that is gone.
    fn forget(&mut self, pod: &Key) {
        self.waiting.remove(pod);
        self.histories.remove(pod);
        self.gone.remove(pod);
        self.refusals.remove(pod);
        self.contests.forget(pod);
        self.unscheduled.forget(pod);
        self.addresses.forget(pod);
    }

    fn is_unavailable(&self, cache: &Cache) -> bool {
        let node = cache.local::<Node>(&Key::cluster(&*self.settings.node));
        node.is_some_and(is_lost)
    }

    /// Returns how long a pod still waits for its tokens and its NamespaceOffloading; `None` if it can start.
    fn wait(&mut self, key: &Key, cache: &Cache, now: Instant) -> Option<Duration> {
        let pod = cache.local::<Pod>(key)?;
        let remote = self.namespaces.remote(&key.namespace)?;
        let has_tokens = |tokens: &TokenSettings| missing(cache, tokens, (pod, remote)).is_empty();
        let is_known = cache.is_synced(&offloading::watch(&key.namespace));
        if is_known && self.tokens.as_ref().is_none_or(has_tokens) {
            self.waiting.remove(key);
            return None;
        }
        let since = *self.waiting.entry(key.clone()).or_insert(now);
        let rest = WAIT_MAX.checked_sub(now.saturating_duration_since(since));

        rest.filter(|it| !it.is_zero())
    }
}

impl Controller for WorkloadController {
    type Item = Key;
    const NAME: &'static str = "workload";
    const FIELD_MANAGER: &'static str = "workload.liqo.io";

    fn resources(&self) -> Vec<Registration> {
        let settings = &self.settings;
        let tenant = || Scope::Namespace(settings.tenant_namespace.clone());
        let mut registrations = vec![
            kept::pods(Scope::All)
                .node(&*settings.node)
                .verbs(&["delete"])
                .subresource("status", "patch"),
            kept::pods(Scope::Planned),
            kept::shadow_pods(Scope::Planned),
            Registration::whole::<NamespaceMap>(tenant()).name(&*settings.provider),
            Registration::whole::<VirtualNode>(tenant()).name(&*settings.node),
            Registration::whole::<NamespaceOffloading>(Scope::Planned),
            Registration::whole::<Node>(Scope::All).name(&*settings.node),
        ];
        if self.tokens.is_some() {
            registrations.extend(awaited::registrations());
        }
        if settings.reflects_events {
            registrations.push(event::registration());
        }

        registrations
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Key> {
        let object = change.object;
        if change.is::<NamespaceMap>() {
            let mut items = vec![watches_item()];
            items.extend(self.items_in(&changed_entries(change), cache));
            return items;
        }
        if change.is::<VirtualNode>() {
            let patch = |node: Option<&VirtualNode>| {
                node.map(|it| (it.spec.offloading_patch.clone(), reserved(it)))
            };
            let is_same = patch(change.before()) == patch(change.after());
            let all = cache.objects::<Pod>(&Cluster::Local);
            return all
                .iter()
                .filter(|_| !is_same)
                .map(|(key, _)| key.clone())
                .collect();
        }
        if change.is::<Node>() {
            let is_lost_now = change.after().is_some_and(is_lost);
            if change.before().is_some_and(is_lost) == is_lost_now {
                return Vec::new();
            }
            let pods = cache.objects::<Pod>(&Cluster::Local);
            self.delayed.change(pods.iter(), is_lost_now);
            return pods.iter().map(|(key, _)| key.clone()).collect();
        }
        if change.is::<NamespaceOffloading>() {
            return self.items_in(&[object.key.namespace.clone()].into(), cache);
        }
        if change.is::<Event>() {
            return self.of_event(change);
        }
        if change.is::<Secret>() || change.is::<ConfigMap>() {
            return self.of_awaited(change);
        }
        let pod = match &object.cluster {
            Cluster::Local => {
                // A list shows a pod that was deleted and created again as a change of another UID.
                let uid = |it: Option<&Pod>| it.and_then(|it| it.metadata.uid.clone());
                let is_same = uid(change.before()) == uid(change.after());
                if change.entry().is_none() || change.before::<Pod>().is_some() && !is_same {
                    self.forget(&object.key);
                }
                self.absences.observe(change);
                Some(object.key.clone())
            }
            Cluster::Remote(_) => {
                let pod = self.of_remote(&object.key);
                if let Some(pod) = pod.as_ref().filter(|_| change.is::<Pod>()) {
                    self.gone.remove(pod);
                }
                pod
            }
        };
        if let Some(pod) = &pod {
            let observed = self.observed(pod, cache);
            self.steps.observe(pod, observed, change.seen_at());
        }

        Vec::from_iter(pod)
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<Key> {
        let namespace = id.namespace.as_deref().unwrap_or_default();
        let local = match id.cluster {
            Cluster::Local => Some(namespace),
            Cluster::Remote(_) => self.namespaces.local(namespace),
        };
        let local = local.map(str::to_owned);
        let items = self.items_in(&local.into_iter().collect(), cache);
        for pod in &items {
            let observed = self.observed(pod, cache);
            self.steps.listed(pod, observed);
        }

        items
    }

    /// The Events of a standby were not published, and another leader has created ShadowPods since a read.
    fn started(&mut self, _cache: &Cache) -> Vec<Key> {
        self.addresses = Addresses::default();
        self.absences = Absences::default();
        self.gone.clear();
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
            plan.requeue = items.map(|item| (Duration::ZERO, item)).collect();
            return plan;
        }
        let wait = self.wait(item, cache, env.at);
        let listing = self.listing(&item.namespace, cache, env.at);
        let user = self.kubeconfig.user();
        let workload = Workload {
            settings: &self.settings,
            user: user.as_deref(),
            namespaces: &self.namespaces,
            cache,
            key: item,
            refusal: self.refusals.get(item).map(String::as_str),
            absence: self.absences.get(item),
            is_gone: self.gone.contains(item),
            is_unavailable: self.is_unavailable(cache),
            wait,
            listing,
        };
        let history = self.histories.entry(item.clone()).or_default();
        let mut plan = workload.plan(history, env);
        self.unscheduled.plan(&workload, env, &mut plan);
        self.addresses.plan(&workload, &mut plan);
        let local = cache.local::<Pod>(item);
        self.contests.plan(&workload, local, env, &mut plan);
        let mut of_shadow = plan.writes.iter().filter(|it| is_of_shadow_pod(it));
        let deletes_shadow = of_shadow.any(|it| it.action == Action::Delete);
        self.absences.planned(item, deletes_shadow);
        self.delayed.plan(item, local, env, &mut plan);
        if local.is_none() {
            self.histories.remove(item);
            self.gone.remove(item);
        }
        // A refusal is of the request that is repeated.
        if plan.reads.is_empty() && !plan.writes.iter().any(is_of_shadow_pod) {
            self.refusals.remove(item);
        }

        plan
    }

    fn done(
        &mut self,
        item: &Key,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<Key> {
        match request {
            Request::Write(write) if is_of_shadow_pod(write) && write.action != Action::Delete => {
                let is_change = matches!(write.action, Action::Merge(_));
                let part = if is_change { "change of the " } else { "" };
                let refused = format!("the provider refuses the {part}ShadowPod");
                self.take(item, outcome, &refused);
                if !matches!(outcome, Outcome::Stored(_)) {
                    self.contests.forget(item);
                }
                self.reflected.count(&item.namespace, request, outcome);
            }
            Request::Read(object) if object.cluster == Cluster::Local => {
                let is_known = self.absences.read(item, outcome, &self.settings);
                return Vec::from_iter(is_known.then(|| item.clone()));
            }
            Request::Read(object) if object.resource == Resource::of::<Pod>() => {
                // One that the cache does not keep is another client's.
                let is_other =
                    matches!(outcome, Outcome::Stored(_)) && cache.entry(object).is_none();
                if is_other || matches!(outcome, Outcome::Gone) {
                    self.gone.insert(item.clone());
                    return vec![item.clone()];
                }
            }
            Request::Read(_) => {
                self.take(item, outcome, "the provider refuses to show the ShadowPod");
                if let Outcome::Stored(entry) = outcome
                    && self
                        .contests
                        .read(item, entry.managers(""), Self::FIELD_MANAGER)
                {
                    return vec![item.clone()];
                }
            }
            Request::Write(_) | Request::Probe(_) => {}
        }

        Vec::new()
    }

    fn queue(item: &Key) -> Queue {
        Queue(item.namespace.clone())
    }
}

/// Returns whether the state of a Node is not ready, or unknown.
fn is_lost(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();

    conditions.any(|it| it.type_ == "Ready" && it.status != "True")
}

pub(super) fn is_of_shadow_pod(write: &Write) -> bool {
    write.object.resource == Resource::of::<ShadowPod>()
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
