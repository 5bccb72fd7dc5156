//! The watches of Secrets and pods in tenant namespaces, which follow the rights of the manager.

use super::item::WorkItem;
use super::objects::Local;
use super::registrations::{pods, secrets};
use crate::network::is_bound;
use control_api::VirtualNode;
use control_api::offloading::virtual_node::{VirtualNodeConditionStatus, VirtualNodeConditionType};
use control_runtime::{Plan, WatchChange, WatchId};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Longest time for which ForeignClusters wait for the lists of these watches after the start. Otherwise a manager
/// that starts would report complete credentials as incomplete for a moment.
const LISTS_WAIT_MAX: Duration = Duration::from_secs(5);

/// Interval at which they check whether the lists are complete.
const LISTS_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The watches that the controller has added.
#[derive(Debug, Default)]
pub(super) struct Watches {
    added: BTreeSet<WatchId>,
    /// Time until which ForeignClusters wait; `None` before the first plan.
    waits_until: Option<Instant>,
}

impl Watches {
    /// Plans the watches in a namespace.
    pub(super) fn plan(&mut self, local: Local<'_>, namespace: &str) -> Plan<WorkItem> {
        let needed = needed(local, namespace);
        let mut plan = Plan::default();
        for id in [secrets(namespace), pods(namespace)] {
            if needed.contains(&id) {
                if self.added.insert(id.clone()) {
                    plan.watches.push(WatchChange::Add(id));
                }
            } else if self.added.remove(&id) {
                plan.watches.push(WatchChange::Remove(id));
            }
        }

        plan
    }

    /// Returns when to plan the ForeignCluster of a peer again, if the objects in its tenant namespace were not all
    /// listed yet.
    pub(super) fn postpone(
        &mut self,
        local: Local<'_>,
        peer: &str,
        now: Instant,
    ) -> Option<Duration> {
        let until = *self.waits_until.get_or_insert(now + LISTS_WAIT_MAX);
        if now >= until || !local.settings.has_authentication {
            return None;
        }
        let needed = needed(local, local.tenant_namespace(peer)?);
        let is_listed = needed.iter().all(|id| local.cache.is_synced(id));

        (!is_listed).then_some(LISTS_CHECK_INTERVAL)
    }
}

/// Returns whether a VirtualNode has a virtual kubelet, or had one.
pub(super) fn has_kubelet(node: &VirtualNode) -> bool {
    let conditions = node.status.iter().flat_map(|it| &it.conditions);
    let mut of_kubelet = conditions.filter(|it| {
        it.type_ == VirtualNodeConditionType::VirtualKubelet
            && it.status != VirtualNodeConditionStatus::None
    });
    of_kubelet.next().is_some()
}

/// Returns the watches that a namespace needs: none without a peer or without rights there, and that of pods only for
/// virtual kubelets.
fn needed(local: Local<'_>, namespace: &str) -> Vec<WatchId> {
    let is_bound = || {
        is_bound(
            local.cache,
            &local.settings.namespace,
            &local.settings.tenant_namespaces,
            namespace,
        )
    };
    if local.peer_of(namespace).is_none() || !is_bound() {
        return Vec::new();
    }
    let mut nodes = local.objects::<VirtualNode>().within(namespace);
    let pods = nodes
        .any(|(_, node)| has_kubelet(node))
        .then(|| pods(namespace));
    pods.into_iter().chain([secrets(namespace)]).collect()
}
