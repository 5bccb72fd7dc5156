//! Defaults, status and finalizer of VirtualNodes, also of those that users create.

use super::item::WorkItem;
use super::objects::{Local, foreign_node};
use super::virtual_kubelet::{self, Assessment, Kubelets, States};
use super::write::reach;
use crate::authentication::warn;
use control_api::VirtualNode;
use control_api::offloading::virtual_node::VirtualNodeCondition as Condition;
use control_api::offloading::virtual_node::VirtualNodeConditionStatus as Status;
use control_api::offloading::virtual_node::VirtualNodeConditionType as Type;
use control_runtime::{Action, Cluster, Entry, Env, Finalizer, Key, Plan, Protection, Ref, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use std::time::Duration;

/// Finalizer of an upstream installation. Without virtual kubelets there is nothing to clean up.
const FINALIZER: Finalizer = Finalizer {
    name: virtual_kubelet::FINALIZER.name,
    wait_max: Duration::ZERO,
};

/// Plans defaults and status of a VirtualNode, its virtual kubelet, and the end of its deletion.
pub(super) fn plan(
    local: &Local<'_>,
    kubelets: Option<&Kubelets>,
    key: &Key,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let object = Ref::of::<VirtualNode>(&Cluster::Local, key);
    let (Some(node), Some(entry)) = (local.virtual_nodes.get(key), local.cache.entry(&object))
    else {
        return match kubelets {
            Some(_) => virtual_kubelet::plan_leftovers(local, key),
            None => Plan::default(),
        };
    };
    let is_ending = node.metadata.deletion_timestamp.is_some();
    match kubelets {
        None if is_ending => {
            let mut plan = Plan::default();
            let item = WorkItem::Status(key.clone());
            FINALIZER.apply(&mut plan, (&object, entry), item, true, env.now);
            plan
        }
        None => plan_without(local, (key, node), env),
        Some(_) if is_ending => {
            let (mut plan, states) = virtual_kubelet::plan_end(local, (key, node), env);
            if let Some(states) = states {
                report(&mut plan, (&object, node), states, env.now);
            }
            plan
        }
        Some(kubelets) => plan_with(local, kubelets, (key, node, entry), env),
    }
}

/// Plans a VirtualNode whose virtual kubelet is of others, or does not exist.
fn plan_without(
    local: &Local<'_>,
    (key, node): (&Key, &VirtualNode),
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let mut desired = node.clone();
    virtual_kubelet::complete_without(&mut desired.spec);
    reach(&mut plan, key, Some(node), &desired);
    let object = Ref::of::<VirtualNode>(&Cluster::Local, key);
    report(&mut plan, (&object, node), [Status::None; 2], env.now);
    let peer = node.spec.cluster_id.as_deref().unwrap_or_default();
    if let Some(refusal) = foreign_node(local, &key.name, peer) {
        warn(&mut plan, object, refusal);
    }

    plan
}

/// Plans a VirtualNode with its virtual kubelet.
fn plan_with(
    local: &Local<'_>,
    kubelets: &Kubelets,
    (key, node, entry): (&Key, &VirtualNode, &Entry),
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let object = Ref::of::<VirtualNode>(&Cluster::Local, key);
    let assessment = Assessment::of(local, kubelets, (key, node));
    let mut desired = node.clone();
    assessment.complete(&mut desired);
    reach(&mut plan, key, Some(node), &desired);
    let is_complete = plan.writes.is_empty();
    let protection = virtual_kubelet::FINALIZER.protection(entry, env.now);
    if assessment.is_accepted() && protection == Protection::Missing {
        // Two changes of one version would conflict.
        if is_complete {
            let item = WorkItem::Status(key.clone());
            virtual_kubelet::FINALIZER.apply(&mut plan, (&object, entry), item, false, env.now);
        }
    } else {
        assessment.plan(&mut plan, local, &desired);
    }
    let is_accepted = assessment.is_accepted();
    let states = virtual_kubelet::states(&mut plan, local, (key, &desired), is_accepted);
    if let Some(states) = states {
        report(&mut plan, (&object, node), states, env.now);
    }

    plan
}

/// Plans the conditions of a VirtualNode: one of each type, in upstream's order.
fn report(
    plan: &mut Plan<WorkItem>,
    (object, node): (&Ref, &VirtualNode),
    states: States,
    now: Timestamp,
) {
    let old = node.status.iter().flat_map(|it| &it.conditions);
    let old: Vec<_> = old.cloned().collect();
    let types = [Type::VirtualKubelet, Type::Node].into_iter().zip(states);
    let new: Vec<_> = types
        .map(|(type_, status)| condition(&old, type_, status, now))
        .collect();
    if old == new {
        return;
    }
    // A merge patch replaces the list, which may have several entries of a type.
    let patch = json!({"status": {"conditions": new}});
    let mut write = Write::new(object.clone(), Action::Merge(patch)).subresource("status");
    write.uid = node.metadata.uid.clone();
    plan.writes.push(write);
}

/// Returns the condition of a part.
fn condition(old: &[Condition], type_: Type, status: Status, now: Timestamp) -> Condition {
    let old = old.iter().find(|old| old.type_ == type_);
    let same = old.filter(|old| old.status == status).cloned();

    same.unwrap_or(Condition {
        last_transition_time: Some(Time(now)),
        message: None,
        reason: None,
        status,
        type_,
    })
}
