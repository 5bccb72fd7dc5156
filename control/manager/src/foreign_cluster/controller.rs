//! Connects the planner of ForeignClusters to the runtime.

use super::item::WorkItem;
use super::objects::{Local, is_ready_replica, peers_of};
use super::plan;
use super::registrations::registrations;
use super::settings::Settings;
use super::watches::Watches;
use crate::network::FIELD_MANAGER;
use control_api::{ForeignCluster, VirtualNode};
use control_runtime::{Cache, Change, Controller, Env, Plan, Queue, Registration};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::collections::BTreeSet;

/// Plans ForeignClusters. No other controller writes them.
pub(crate) struct ForeignClusterController {
    settings: Settings,
    watches: Watches,
}

impl ForeignClusterController {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            watches: Watches::default(),
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
        let mut items: Vec<_> = peers.into_iter().map(WorkItem::Peer).collect();
        if settings.has_authentication {
            items.extend(namespace_of_watches(change).map(WorkItem::Watches));
        }

        items
    }

    fn plan(&mut self, item: &WorkItem, cache: &Cache, env: &mut Env<'_>) -> Plan<WorkItem> {
        let settings = &self.settings;
        let local = Local { settings, cache };
        match item {
            WorkItem::Watches(namespace) => self.watches.plan(local, namespace),
            WorkItem::Peer(peer) => match self.watches.postpone(local, peer, env.at) {
                Some(delay) => Plan {
                    requeue: vec![(delay, item.clone())],
                    ..Plan::default()
                },
                None => plan::plan(local, peer, env.now),
            },
        }
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

/// Returns the namespace in which a change may require other watches.
fn namespace_of_watches(change: &Change<'_>) -> Option<String> {
    let key = &change.object.key;
    let is_other =
        change.before::<VirtualNode>().is_some() != change.after::<VirtualNode>().is_some();
    if change.is::<Namespace>() {
        Some(key.name.clone())
    } else if change.is::<RoleBinding>() || change.is::<VirtualNode>() && is_other {
        Some(key.namespace.clone())
    } else {
        None
    }
}
