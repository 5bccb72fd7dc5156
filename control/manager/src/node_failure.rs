//! The node failure controller: deletes pods of consumers that cannot terminate, because their node has failed.
//!
//! A deleted pod exists until its kubelet has ended it. If the node fails, the pod keeps its name, so the ShadowPod controller
//! cannot create it on another node. This controller deletes such pods without waiting for the kubelet. As upstream's, it is
//! off by default: a node that is only unreachable may still run the pod beside its replacement.

#[cfg(test)]
mod tests;

mod metrics;

use crate::namespace::MANAGER_ROLE;
use crate::network::keep;
use crate::shadow_pod::owner;
use control_api::labels;
use control_runtime::{
    Action, Cache, Change, Cluster, Controller, Env, Event, Key, Outcome, Plan, Queue, Ref,
    Registration, Request, Scope, Write,
};
use k8s_openapi::api::core::v1::{Node, Pod};
pub(crate) use metrics::Metrics;

/// Index of pods by the name of their node.
const BY_NODE: &str = "node_failure/node";

/// Reason of the Event.
const REASON: &str = "NodeFailed";

/// Deletes the terminating pods of ShadowPods on nodes that are not ready.
pub(crate) struct NodeFailureController {
    metrics: Metrics,
}

impl NodeFailureController {
    /// Creates the controller.
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self { metrics }
    }
}

impl Controller for NodeFailureController {
    type Item = Key;
    const NAME: &'static str = "node_failure";
    const FIELD_MANAGER: &'static str = "node-failure";

    fn resources(&self) -> Vec<Registration> {
        registrations()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Key> {
        let key = &change.object.key;
        if !change.is::<Node>() {
            return vec![key.clone()];
        }
        if !change.after::<Node>().is_some_and(has_failed) {
            return Vec::new();
        }
        let pods = cache.objects::<Pod>(&Cluster::Local);
        pods.indexed(BY_NODE, &key.name)
            .map(|(key, _)| key.clone())
            .collect()
    }

    fn plan(&mut self, key: &Key, cache: &Cache, _env: &mut Env<'_>) -> Plan<Key> {
        let mut plan = Plan::default();
        let Some((pod, node)) = stuck(cache, key) else {
            return plan;
        };
        let object = Ref::of::<Pod>(&Cluster::Local, key);
        let mut write = Write::new(object.clone(), Action::Delete);
        write.uid.clone_from(&pod.metadata.uid);
        write.is_immediate = true;
        plan.writes.push(write);
        plan.events.push(Event {
            object,
            is_warning: true,
            reason: REASON,
            note: format!(
                "node {node} is not ready, so the terminating pod is deleted without its confirmation: its containers may \
                 still run there"
            ),
            is_repeated: false,
        });

        plan
    }

    fn done(&mut self, _: &Key, request: &Request, outcome: &Outcome, _: &Cache) -> Vec<Key> {
        let is_deleted = matches!(outcome, Outcome::Gone | Outcome::Stored(_));
        if is_deleted && matches!(request, Request::Write(_)) {
            self.metrics.delete_pod();
        }

        Vec::new()
    }

    /// The namespaces of a consumer take turns with those of others.
    fn queue(key: &Key) -> Queue {
        Queue(key.namespace.clone())
    }

    fn item_kind(_: &Key) -> &'static str {
        "pod"
    }
}

/// Returns the resources that the controller follows.
pub(crate) fn registrations() -> Vec<Registration> {
    vec![
        Registration::of(Scope::All, keep::<Pod>)
            .labels(format!(
                "{}={}",
                labels::MANAGED_BY,
                labels::MANAGED_BY_SHADOW_POD
            ))
            .index(BY_NODE, |pod: &Pod| {
                node_of(pod).map(str::to_owned).into_iter().collect()
            })
            .verbs(&["delete"])
            .written_in(Scope::Bound(MANAGER_ROLE)),
        Registration::of(Scope::All, keep::<Node>),
    ]
}

/// Returns a pod of a ShadowPod whose termination waits for a failed node, and the name of the node.
fn stuck<'a>(cache: &'a Cache, key: &Key) -> Option<(&'a Pod, &'a str)> {
    let pod = cache.objects::<Pod>(&Cluster::Local).get(key)?;
    let name = node_of(pod)?;
    let node = cache
        .objects::<Node>(&Cluster::Local)
        .get(&Key::cluster(name))?;
    // Without a grace period it waits for finalizers only.
    let awaits_kubelet = pod.metadata.deletion_timestamp.is_some()
        && pod.metadata.deletion_grace_period_seconds != Some(0);

    (awaits_kubelet && owner(&pod.metadata).is_some() && has_failed(node)).then_some((pod, name))
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// Returns whether the condition `Ready` is False or Unknown. A Node without it has just joined.
fn has_failed(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|it| &it.conditions);
    let mut conditions = conditions.flatten();

    conditions.any(|it| it.type_ == "Ready" && it.status != "True")
}
