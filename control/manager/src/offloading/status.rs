//! Defaults, status and finalizer of VirtualNodes, also of those that users create.

use super::item::WorkItem;
use super::objects::{Local, Refusal};
use super::write::reach;
use crate::authentication::{label, warn};
use control_api::offloading::virtual_node::VirtualNodeCondition as Condition;
use control_api::offloading::virtual_node::VirtualNodeConditionStatus as Status;
use control_api::offloading::virtual_node::VirtualNodeConditionType as Type;
use control_api::{VirtualNode, labels};
use control_runtime::{Action, Cluster, Env, Finalizer, Key, Plan, Ref, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Default of `spec.createNode`, that of upstream's VkOptionsTemplate.
pub(super) const CREATE_NODE: bool = true;

/// Default of `spec.disableNetworkCheck`, likewise.
pub(super) const DISABLE_NETWORK_CHECK: bool = false;

/// Finalizer of an upstream installation. This controller never sets it, because there is nothing to clean up.
const FINALIZER: Finalizer = Finalizer {
    name: "virtualnode-controller.liqo.io/finalizer",
    wait_max: Duration::ZERO,
};

/// Plans defaults and status of a VirtualNode, and lets its deletion end.
pub(super) fn plan(local: &Local<'_>, key: &Key, env: &Env<'_>) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let object = Ref::of::<VirtualNode>(&Cluster::Local, key);
    let (Some(node), Some(entry)) = (local.virtual_nodes.get(key), local.cache.entry(&object))
    else {
        return plan;
    };
    if node.metadata.deletion_timestamp.is_some() {
        let item = WorkItem::Status(key.clone());
        FINALIZER.apply(&mut plan, (&object, entry), item, true, env.now);
        return plan;
    }
    let mut desired = node.clone();
    let spec = &mut desired.spec;
    spec.create_node.get_or_insert(CREATE_NODE);
    spec.disable_network_check
        .get_or_insert(DISABLE_NETWORK_CHECK);
    reach(&mut plan, key, Some(node), &desired);
    let conditions = |node: &VirtualNode| {
        let conditions = node.status.iter().flat_map(|it| &it.conditions);
        conditions.cloned().collect::<Vec<_>>()
    };
    let old = conditions(node);
    let new = [Type::VirtualKubelet, Type::Node].map(|type_| condition(&old, type_, env.now));
    if old != new {
        // A merge patch replaces the list, which may have several entries of a type.
        let patch = json!({"status": {"conditions": new}});
        let mut write = Write::new(object.clone(), Action::Merge(patch)).subresource("status");
        write.uid = node.metadata.uid.clone();
        plan.writes.push(write);
    }
    let peer = node.spec.cluster_id.as_deref().unwrap_or_default();
    if let Some(refusal) = foreign_node(local, &key.name, peer) {
        warn(&mut plan, object, refusal);
    }

    plan
}

/// Returns the condition of a part, none of which exists until there is a virtual kubelet.
fn condition(old: &[Condition], type_: Type, now: Timestamp) -> Condition {
    let old = old.iter().find(|old| old.type_ == type_);
    let same = old.filter(|old| old.status == Status::None).cloned();

    same.unwrap_or(Condition {
        last_transition_time: Some(Time(now)),
        message: None,
        reason: None,
        status: Status::None,
        type_,
    })
}

/// Returns the refusal of a name that a Node has which does not represent resources of `peer`.
pub(super) fn foreign_node(local: &Local<'_>, name: &str, peer: &str) -> Option<Refusal> {
    let metadata = &local.nodes.get(&Key::cluster(name))?.metadata;
    let is_virtual = label(metadata, labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL);
    if is_virtual && label(metadata, labels::REMOTE_CLUSTER_ID) == Some(peer) {
        return None;
    }
    let message = format!(
        "Node {name} exists and does not represent resources of `{peer}`: use another name"
    );

    Some(("NodeExists", message))
}
