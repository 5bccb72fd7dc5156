//! Conditions of a pod: those of the remote pod, and those that clients of this cluster set.
//!
//! A kubelet writes the conditions of its own types, and keeps all others that it finds (`mergePodStatus` in
//! `pkg/kubelet/status/status_manager.go`). Here, the provider's conditions of other types are reflected, too, so a condition stays
//! unless the provider has one of its type. The readiness gates of a pod can thus be conditions of either cluster: a remote pod
//! without those of this cluster is not ready for its kubelet, which names the gates as the reason.

use super::bounds;
use super::context::Context;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeSet;

/// Condition that decides whether Services send traffic to the pod.
pub(super) const READY: &str = "Ready";
/// Condition of a pod whose containers are ready.
pub(super) const CONTAINERS_READY: &str = "ContainersReady";

/// Reason of [`READY`] if only the readiness gates of the pod are missing (`pkg/kubelet/status/generate.go`).
const GATES_NOT_READY: &str = "ReadinessGatesNotReady";

/// Types of the kubelet's conditions, without `DisruptionTarget`, which the control plane sets, too.
const OF_KUBELET: [&str; 8] = [
    "AllContainersRestarting",
    CONTAINERS_READY,
    "Initialized",
    "PodReadyToStartContainers",
    "PodResizeInProgress",
    "PodResizePending",
    "PodScheduled",
    READY,
];

/// Adds the types of the conditions of a remote pod to those that the provider has reported.
pub(crate) fn observe(reported: &mut BTreeSet<String>, remote: &PodStatus) {
    for condition in remote.conditions.iter().flatten() {
        if reported.len() == 2 * bounds::CONDITIONS_MAX {
            return;
        }
        if bounds::is_qualified_name(&condition.type_) {
            reported.insert(condition.type_.clone());
        }
    }
}

/// Returns whether a condition is the kubelet's, so that the provider alone decides about it.
pub(super) fn is_of_kubelet(condition: &PodCondition) -> bool {
    OF_KUBELET.contains(&condition.type_.as_str())
}

/// Returns whether other clients of this cluster than this one have set conditions of a pod, or may do so.
pub(crate) fn has_others(pod: &Pod) -> bool {
    gates(pod).next().is_some() || current(pod).iter().any(|it| !is_of_kubelet(it))
}

/// Returns the conditions that a pod has.
pub(super) fn current(pod: &Pod) -> &[PodCondition] {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_deref());
    conditions.unwrap_or_default()
}

/// Returns the conditions, one of each type.
pub(super) fn conditions(remote: &[PodCondition], context: &Context<'_>) -> Vec<PodCondition> {
    let mut conditions = of_provider(remote, context);
    let kept = current(context.pod).iter().filter(|kept| {
        let is_known = conditions.iter().any(|it| it.type_ == kept.type_);
        let is_of_provider = context.reported.contains(&kept.type_);
        !is_known && !is_of_provider && !is_of_kubelet(kept)
    });
    // Some may be earlier ones of the provider, so their number is limited, but not that of the control plane's and of the gates.
    let mut others = 0;
    let kept = kept.filter(|kept| {
        let is_other =
            kept.type_ != "DisruptionTarget" && !gates(context.pod).any(|it| it == kept.type_);
        others += usize::from(is_other);
        !is_other || others <= bounds::CONDITIONS_MAX
    });
    let kept: Vec<_> = kept.cloned().collect();
    conditions.extend(kept);
    apply_gates(&mut conditions, context);

    conditions
}

fn of_provider(remote: &[PodCondition], context: &Context<'_>) -> Vec<PodCondition> {
    let mut conditions: Vec<PodCondition> = Vec::new();
    for condition in remote {
        let is_known = conditions.iter().any(|it| it.type_ == condition.type_);
        if is_known || !bounds::is_qualified_name(&condition.type_) {
            continue;
        }
        if conditions.len() == bounds::CONDITIONS_MAX {
            break;
        }
        conditions.push(PodCondition {
            last_probe_time: condition.last_probe_time.clone(),
            last_transition_time: condition.last_transition_time.clone(),
            message: bounds::message(condition.message.as_deref()),
            observed_generation: condition
                .observed_generation
                .map(|it| bounds::generation(it, context)),
            reason: bounds::reason(condition.reason.as_deref()),
            status: bounds::condition_status(&condition.status),
            type_: condition.type_.clone(),
        });
    }

    conditions
}

/// Returns the types of the conditions without which a pod is not ready.
fn gates(pod: &Pod) -> impl Iterator<Item = &str> {
    let gates = pod
        .spec
        .iter()
        .flat_map(|it| it.readiness_gates.iter().flatten());
    gates.map(|it| it.condition_type.as_str())
}

/// Has the condition `Ready` follow the readiness gates, as a kubelet does. The kubelet of the remote pod knows the provider's
/// conditions only.
fn apply_gates(conditions: &mut [PodCondition], context: &Context<'_>) {
    let is_true = |type_: &str| {
        let mut conditions = conditions.iter();
        conditions.any(|it| it.type_ == type_ && it.status == "True")
    };
    if gates(context.pod).next().is_none() {
        return;
    }
    let missing = gates(context.pod).find(|it| !is_true(it));
    let are_containers_ready = is_true(CONTAINERS_READY);
    let Some(ready) = conditions.iter_mut().find(|it| it.type_ == READY) else {
        return;
    };
    let is_of_gates = ready.reason.as_deref() == Some(GATES_NOT_READY);
    let (status, reason, message) = match missing {
        Some(gate) if ready.status == "True" => {
            let message = format!("the readiness gate {gate} of the pod is not true");
            ("False", Some(GATES_NOT_READY.to_owned()), Some(message))
        }
        None if ready.status == "False" && is_of_gates && are_containers_ready => {
            ("True", None, None)
        }
        Some(_) | None => return,
    };
    let mut before = current(context.pod).iter();
    let before = before.find(|it| it.type_ == READY && it.status == status);
    // The transition keeps its time, so that the status is written once.
    let since = before.and_then(|it| it.last_transition_time.clone());

    ready.status = status.to_owned();
    ready.reason = reason;
    ready.message = message;
    ready.last_transition_time = since.or(Some(Time(context.now)));
}
