//! Connects the planner of ForeignClusters to the runtime.

use super::item::WorkItem;
use super::objects::{Local, is_ready_replica, peers_of};
use super::pause::Pause;
use super::plan::{self, Provider};
use super::probe::Probes;
use super::registrations::registrations;
use super::settings::Settings;
use super::watches::{self, Watches};
use crate::network::FIELD_MANAGER;
use crate::replication::Report;
use control_api::{ForeignCluster, Identity, VirtualNode};
use control_runtime::{
    Cache, Change, Controller, Env, Injector, Outcome, Plan, Queue, Registration, Request,
};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans ForeignClusters. No other controller writes them.
pub(crate) struct ForeignClusterController {
    settings: Settings,
    watches: Watches,
    probes: Probes,
    pause: Pause,
    refusals: Refusals,
}

/// Cluster IDs of the providers that refuse the requests of this cluster. The replication controller knows them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(Arc<Mutex<BTreeSet<String>>>);

impl Refusals {
    /// Returns the function that adds and removes a provider, and has its ForeignCluster planned.
    pub(crate) fn report(self, injector: Injector<WorkItem>) -> Report {
        Box::new(move |id, is_refusing| {
            let has_changed = match is_refusing {
                true => self.lock().insert(id.to_owned()),
                false => self.lock().remove(id),
            };
            if has_changed {
                injector.push(WorkItem::Peer(id.to_owned()));
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ForeignClusterController {
    pub(crate) fn new(settings: Settings, refusals: Refusals) -> Self {
        Self {
            settings,
            watches: Watches::default(),
            probes: Probes::default(),
            pause: Pause::default(),
            refusals,
        }
    }
}

impl Controller for ForeignClusterController {
    type Item = WorkItem;
    const NAME: &'static str = "foreign-cluster";
    /// That of the network controller, which wrote ForeignClusters in earlier releases: an Apply removes the fields
    /// of theirs that it lacks.
    const FIELD_MANAGER: &'static str = FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        registrations(&self.settings)
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<WorkItem> {
        let settings = &self.settings;
        let local = Local { settings, cache };
        let key = &change.object.key;
        let mut peers = peers_of(change);
        // Some objects lack a label, but are in the namespace of a peer.
        peers.extend(local.peer_of(&key.namespace).map(str::to_owned));
        if change.is::<Pod>() && key.namespace == settings.namespace {
            peers.extend(peers_of_replica(local, change));
        }
        let mut items = Vec::new();
        if settings.has_authentication {
            items.extend(namespace_of_watches(change).map(WorkItem::Watches));
            if may_change_probe(change) {
                items.extend(peers.iter().cloned().map(WorkItem::Probe));
            }
        }
        items.extend(peers.into_iter().map(WorkItem::Peer));

        items
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let settings = &self.settings;
        let local = Local { settings, cache };
        match item {
            WorkItem::Probe(peer) => self.probes.plan(local, peer, env.at),
            WorkItem::Watches(namespace) => self.watches.plan(local, namespace),
            WorkItem::Peer(peer) => {
                let again = |delay| Plan {
                    requeue: vec![(delay, item.clone())],
                    ..Plan::default()
                };
                if let Some(delay) = self.watches.postpone(local, peer, env.at) {
                    return again(delay);
                }
                let provider = Provider {
                    is_ready: self.probes.is_ready(peer),
                    is_refusing: self.refusals.lock().contains(peer),
                };
                let plan = plan::plan(local, peer, provider, env.now);
                if !plan::is_urgent(local, peer, &plan)
                    && let Some(delay) = self.pause.wait(peer, env.at)
                {
                    return again(delay);
                }
                if !plan.writes.is_empty() {
                    self.pause.skip(peer, env.at);
                }
                plan
            }
        }
    }

    fn done(
        &mut self,
        item: &WorkItem,
        request: &Request,
        outcome: &Outcome,
        _: &Cache,
    ) -> Vec<WorkItem> {
        let (WorkItem::Probe(peer), Request::Probe(_)) = (item, request) else {
            return Vec::new();
        };
        let has_changed = self.probes.take(peer, outcome);
        let is_retried = self.probes.is_ready(peer) == Some(false);
        let changed = has_changed.then(|| WorkItem::Peer(peer.clone()));
        let retried = is_retried.then(|| WorkItem::Probe(peer.clone()));

        changed.into_iter().chain(retried).collect()
    }

    fn queue(item: &WorkItem) -> Queue {
        Queue(item.name().to_owned())
    }

    fn item_kind(item: &WorkItem) -> &'static str {
        item.kind()
    }
}

/// Returns all peers if a change of a pod of the gateway changes the number of replicas, or of those that are ready.
fn peers_of_replica(local: Local<'_>, change: &Change<'_>) -> BTreeSet<String> {
    let before = change.before().map(is_ready_replica);
    let after = change.after().map(is_ready_replica);
    if before.flatten() == after.flatten() {
        return BTreeSet::new();
    }
    let all = local.objects::<ForeignCluster>();
    all.iter().map(|(key, _)| key.name.clone()).collect()
}

/// Returns whether a change may begin or end the probes of a peer, or makes one due.
fn may_change_probe(change: &Change<'_>) -> bool {
    change.is::<Secret>()
        || change.is::<Identity>()
        || change.is::<ForeignCluster>()
        || change.is::<Namespace>()
        || change.is::<ConfigMap>()
}

/// Returns the namespace in which a change may require other watches.
fn namespace_of_watches(change: &Change<'_>) -> Option<String> {
    let key = &change.object.key;
    let has_kubelet = |node: Option<&VirtualNode>| node.is_some_and(watches::has_kubelet);
    let is_other = has_kubelet(change.before()) != has_kubelet(change.after());
    if change.is::<Namespace>() {
        Some(key.name.clone())
    } else if change.is::<RoleBinding>() || change.is::<VirtualNode>() && is_other {
        Some(key.namespace.clone())
    } else {
        None
    }
}
