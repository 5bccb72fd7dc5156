//! The end of a VirtualNode, in upstream's order.
//!
//! ```text
//! Draining   the Node is cordoned, its pods are evicted
//! Stopping   the Deployment of the virtual kubelet is deleted, its pods terminate
//! Removing   the bindings, the ServiceAccount and the Node are deleted
//! ```
//!
//! The virtual kubelet runs while pods are evicted, because only it can terminate them at the provider. Each step is derived
//! from the objects that are left, and has a limit of time.

use super::access::Access;
use super::{deployment, drain, rights};
use crate::authentication::{label, warn};
use crate::offloading::item::WorkItem;
use crate::offloading::objects::{BY_NAME, Local};
use crate::offloading::write::delete;
use control_api::core::foreign_cluster::ForeignClusterConditionStatus;
use control_api::offloading::virtual_node::VirtualNodeConditionStatus as Status;
use control_api::{VirtualNode, labels};
use control_runtime::{Cluster, Env, Finalizer, Key, Plan, Protection, Ref};
use k8s_openapi::api::core::v1::Node;
use std::time::Duration;

/// The finalizer, with upstream's name.
///
/// `liqoctl unpeer` waits for the VirtualNodes 2 minutes, and can be repeated.
pub(in crate::offloading) const FINALIZER: Finalizer = Finalizer {
    name: "virtualnode-controller.liqo.io/finalizer",
    wait_max: Duration::from_secs(600),
};

/// Longest time for which the end waits for evicted pods: budgets may prevent an eviction, and pods may take long.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(300);

/// The same, if the provider is declared unreachable for ever.
const DEAD_DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);

/// Longest time for which the end waits for the pods of the virtual kubelet, after its start. A node that is away does not
/// report their end.
const STOP_WAIT_MAX: Duration = Duration::from_secs(450);

/// The same, if the provider is declared unreachable for ever.
const DEAD_STOP_WAIT_MAX: Duration = Duration::from_secs(80);

/// The steps of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Draining,
    Stopping,
    Removing,
}

/// The states of virtual kubelet and Node.
pub(in crate::offloading) type States = [Status; 2];

/// Plans the end of a VirtualNode that is being deleted, and returns the states of its parts, if they are known.
pub(in crate::offloading) fn plan(
    local: &Local<'_>,
    (key, node): (&Key, &VirtualNode),
    env: &Env<'_>,
) -> (Plan<WorkItem>, Option<States>) {
    let mut plan = Plan::default();
    let object = Ref::of::<VirtualNode>(&Cluster::Local, key);
    let Some(entry) = local.cache.entry(&object) else {
        return (plan, None);
    };
    let item = WorkItem::Status(key.clone());
    let left = match FINALIZER.protection(entry, env.now) {
        Protection::CleaningUp(left) => left,
        // Everything is deleted at once.
        Protection::Expired => Duration::ZERO,
        Protection::Missing | Protection::Set | Protection::Released => {
            return (plan, None);
        }
    };
    let elapsed = FINALIZER.wait_max.saturating_sub(left);
    let peer = node.spec.cluster_id.as_deref();
    let peer = peer.or_else(|| local.peer_of(&key.namespace));
    let peer = peer.unwrap_or_default();
    let end = End {
        local,
        key,
        peer,
        is_dead: is_dead(local, peer),
        elapsed,
    };
    let (is_clean, states) = end.plan(&mut plan);
    FINALIZER.apply(&mut plan, (&object, entry), item, is_clean, env.now);
    let is_known = Access::of(local, &key.namespace) != Access::Pending;

    (plan, is_known.then_some(states))
}

/// Returns whether a VirtualNode that is being deleted still has a virtual kubelet, which needs its rights.
pub(super) fn needs_rights(local: &Local<'_>, key: &Key) -> bool {
    deployment::own(local, key).is_some() || has_kubelet_pods(local, key)
}

struct End<'a> {
    local: &'a Local<'a>,
    key: &'a Key,
    peer: &'a str,
    is_dead: bool,
    /// Time since the request to delete the VirtualNode.
    elapsed: Duration,
}

impl End<'_> {
    /// Plans the current step, and returns whether nothing is left, and the states of the parts.
    fn plan(&self, plan: &mut Plan<WorkItem>) -> (bool, States) {
        let (local, key) = (self.local, self.key);
        let access = Access::of(local, &key.namespace);
        let node = drain::own(local, &key.name, self.peer).filter(|_| self.is_of_this());
        let deployment = deployment::own(local, key).filter(|_| access == Access::Listed);
        let is_drained = node.is_none_or(|node| self.drain(plan, node));
        let is_stopped = match access {
            Access::Listed => deployment.is_none() && !has_kubelet_pods(local, key),
            Access::Pending => false,
            Access::Ending => true,
        };
        let step = match (is_drained, is_stopped) {
            (false, _) => Step::Draining,
            (true, false) if !self.is_over(plan, STOP_WAIT_MAX, DEAD_STOP_WAIT_MAX) => {
                Step::Stopping
            }
            (true, _) => Step::Removing,
        };
        if let (Step::Stopping | Step::Removing, Some(deployment)) = (step, deployment) {
            delete(plan, &deployment::key_of(key), deployment);
        }
        let mut is_clean = false;
        if step == Step::Removing {
            is_clean = rights::remove(plan, local, key, (access == Access::Listed, is_stopped))
                && node.is_none();
            if let Some(node) = node {
                drain::remove(plan, node);
            }
        }
        let of_kubelet = match step {
            Step::Draining if deployment.is_some() => Status::Running,
            Step::Draining | Step::Removing => Status::None,
            Step::Stopping => Status::Deleting,
        };
        let of_node = match step {
            _ if node.is_none() => Status::None,
            Step::Draining => Status::Draining,
            Step::Stopping | Step::Removing => Status::Deleting,
        };

        (is_clean, [of_kubelet, of_node])
    }

    /// Plans the drain of the Node; returns whether it has ended, or has reached its limit.
    fn drain(&self, plan: &mut Plan<WorkItem>, node: &Node) -> bool {
        let is_over = self.is_over(plan, DRAIN_WAIT_MAX, DEAD_DRAIN_WAIT_MAX);
        let is_drained = drain::plan(plan, self.local, node, self.is_dead);
        if is_over && !is_drained {
            let message = format!(
                "Node {} still has pods: it is deleted with them. PodDisruptionBudgets or finalizers may have kept them",
                self.key.name
            );
            refuse(plan, self.key, ("DrainTimedOut", message));
        }

        is_over || is_drained
    }

    /// Returns whether the Node can be of this VirtualNode. With a duplicate name, it is that of the other one.
    fn is_of_this(&self) -> bool {
        let mut named = self.local.virtual_nodes.indexed(BY_NAME, &self.key.name);
        named.all(|(other, it)| other == self.key || it.metadata.deletion_timestamp.is_some())
    }

    /// Returns whether a step has reached its limit; otherwise has it planned again then.
    fn is_over(&self, plan: &mut Plan<WorkItem>, limit: Duration, if_dead: Duration) -> bool {
        let limit = if self.is_dead { if_dead } else { limit };
        match limit.checked_sub(self.elapsed) {
            Some(left) if !left.is_zero() => {
                plan.requeue
                    .push((left, WorkItem::Status(self.key.clone())));
                false
            }
            Some(_) | None => true,
        }
    }
}

/// Plans the end of a Node whose VirtualNode stays without it, and returns its state.
pub(in crate::offloading) fn plan_node(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    (name, peer): (&str, &str),
) -> Status {
    let Some(node) = drain::own(local, name, peer) else {
        return Status::None;
    };
    if !drain::plan(plan, local, node, is_dead(local, peer)) {
        return Status::Draining;
    }
    drain::remove(plan, node);

    Status::Deleting
}

/// Plans the deletion of rights that a VirtualNode has left, which was removed without its clean-up.
pub(in crate::offloading) fn plan_leftovers(local: &Local<'_>, key: &Key) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    rights::remove_cluster_binding(&mut plan, local, key);

    plan
}

/// Returns whether any Node is being drained, so that the offloaded pods are watched.
pub(in crate::offloading) fn is_draining(local: &Local<'_>) -> bool {
    local.virtual_nodes.iter().any(|(key, node)| {
        let is_ending =
            node.metadata.deletion_timestamp.is_some() || node.spec.create_node == Some(false);
        let peer = node.spec.cluster_id.as_deref().unwrap_or_default();
        is_ending && drain::own(local, &key.name, peer).is_some()
    })
}

/// Returns whether the administrator has declared that a provider never responds again, and it does not respond.
fn is_dead(local: &Local<'_>, peer: &str) -> bool {
    let cluster = local.foreign_clusters.get(&Key::cluster(peer));
    cluster.is_some_and(|cluster| {
        cluster.is_declared_dead()
            && !cluster.is_api_server(ForeignClusterConditionStatus::Established)
    })
}

fn has_kubelet_pods(local: &Local<'_>, key: &Key) -> bool {
    let mut pods = local.pods.within(&key.namespace);
    pods.any(|(_, pod)| {
        let component = label(&pod.metadata, labels::OFFLOADING_COMPONENT);
        component == Some(labels::OFFLOADING_COMPONENT_VIRTUAL_KUBELET)
            && label(&pod.metadata, labels::VIRTUAL_NODE) == Some(&key.name)
    })
}

/// Adds an Event about a VirtualNode.
pub(in crate::offloading) fn refuse(
    plan: &mut Plan<WorkItem>,
    key: &Key,
    refusal: (&'static str, String),
) {
    warn(plan, Ref::of::<VirtualNode>(&Cluster::Local, key), refusal);
}
