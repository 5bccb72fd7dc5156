//! The end of a Node: it is cordoned, its pods are evicted, and it is deleted.

use super::access::offloaded_pods;
use crate::network::MIRROR_POD;
use crate::offloading::item::WorkItem;
use crate::offloading::objects::{BY_NODE, Local, annotation, foreign_node};
use crate::offloading::write::delete;
use control_runtime::{Action, Cluster, Key, Plan, Ref, WatchChange, Write};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;

/// Most evictions of one plan. The next ones follow when these pods terminate.
const EVICTIONS_MAX: usize = 100;

/// Returns the Node of a VirtualNode, unless the one of this name is another one.
pub(super) fn own<'a>(local: &Local<'a>, name: &str, peer: &str) -> Option<&'a Node> {
    let node = local.nodes.get(&Key::cluster(name))?;
    foreign_node(local, name, peer).is_none().then_some(node)
}

/// Plans that a Node gets no further pods, and the evictions of those that it has; returns whether it has none left.
///
/// Pods of DaemonSets stay, as with `kubectl drain`, because their controller would create them again. `is_dead` says that
/// the provider never responds again: then pods are not terminated gracefully, which only the provider could do.
pub(super) fn plan(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    node: &Node,
    is_dead: bool,
) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    if !is_cordoned {
        let object = Ref::of::<Node>(&Cluster::Local, &Key::cluster(name));
        let patch = json!({"spec": {"unschedulable": true}});
        let mut write = Write::new(object, Action::Merge(patch));
        write.uid = node.metadata.uid.clone();
        plan.writes.push(write);
    }
    let watch = offloaded_pods();
    if !local.cache.is_synced(&watch) {
        plan.watches.push(WatchChange::Add(watch));
        return false;
    }
    let pods = local.pods.indexed(BY_NODE, name);
    let pods: Vec<_> = pods.filter(|(_, pod)| !is_exempt(pod)).collect();
    let running = pods.iter().filter(|(_, pod)| {
        // A graceful termination that has begun is cut short if the provider is dead.
        pod.metadata.deletion_timestamp.is_none() || is_dead
    });
    let evictions = running.take(EVICTIONS_MAX);
    plan.writes
        .extend(evictions.map(|(key, pod)| eviction(key, pod, is_dead)));

    is_cordoned && pods.is_empty()
}

/// Plans the deletion of a Node, after the other writes of the plan.
pub(super) fn remove(plan: &mut Plan<WorkItem>, node: &Node) {
    let before = plan.writes.len();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    delete(plan, &Key::cluster(name), node);
    plan.writes[before..]
        .iter_mut()
        .for_each(|write| write.is_last = true);
}

fn is_exempt(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_of_daemon_set = owners.any(|it| it.kind == "DaemonSet" && it.controller == Some(true));

    is_of_daemon_set || annotation(&pod.metadata, MIRROR_POD).is_some()
}

fn eviction(key: &Key, pod: &Pod, is_dead: bool) -> Write {
    let mut options = json!({"preconditions": {"uid": pod.metadata.uid}});
    if is_dead {
        options["gracePeriodSeconds"] = json!(0);
    }
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": key.name, "namespace": key.namespace},
        "deleteOptions": options,
    });
    let object = Ref::of::<Pod>(&Cluster::Local, key);

    Write::new(object, Action::Post(eviction)).subresource("eviction")
}
