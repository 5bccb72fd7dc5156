//! Status of the remote pod -> status of the pod.

use super::bounds;
use super::container;
use super::context::Context;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Condition that decides whether Services send traffic to the pod.
const READY: &str = "Ready";
/// Reason of [`READY`] while the virtual node is not ready.
const REMOTE_UNAVAILABLE: &str = "RemoteUnavailable";

/// Returns whether the condition `Ready` of a pod is true.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready(pod).is_some_and(|it| it.status == "True")
}

/// Returns whether a pod is not ready because the virtual node is not.
pub(crate) fn is_unavailable(pod: &Pod) -> bool {
    ready(pod).is_some_and(|it| it.reason.as_deref() == Some(REMOTE_UNAVAILABLE))
}

fn ready(pod: &Pod) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|it| it.type_ == READY)
}

/// Returns the status of a pod from that of the remote pod.
pub(crate) fn local(remote: &PodStatus, context: &Context<'_>) -> PodStatus {
    let current = context.pod.status.as_ref();
    let pod_ip = remote.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
    let pod_ip = pod_ip.and_then(context.map_ip).map(|ip| ip.to_string());
    let host_ip = context.host_ip.map(|ip| ip.to_string());

    PodStatus {
        conditions: remote.conditions.as_ref().map(|it| conditions(it, context)),
        container_statuses: container::of_containers(remote, context),
        ephemeral_container_statuses: container::of_ephemeral_containers(remote, context),
        host_ips: host_ip.clone().map(|ip| vec![HostIP { ip }]),
        host_ip,
        init_container_statuses: container::of_init_containers(remote, context),
        message: bounds::message(remote.message.as_deref()),
        observed_generation: remote
            .observed_generation
            .map(|it| bounds::generation(it, context)),
        phase: remote.phase.as_deref().map(bounds::phase),
        pod_ips: pod_ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip,
        // The API server has computed it, and refuses another one.
        qos_class: current.and_then(|it| it.qos_class.clone()),
        reason: bounds::reason(remote.reason.as_deref()),
        start_time: remote.start_time.clone(),
        ..PodStatus::default()
    }
}

/// Returns the conditions, one of each type.
fn conditions(remote: &[PodCondition], context: &Context<'_>) -> Vec<PodCondition> {
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
    if context.is_unavailable {
        let ready = conditions.iter_mut().filter(|it| it.type_ == READY);
        ready.for_each(|condition| set_unavailable(condition, context));
    }

    conditions
}

fn set_unavailable(condition: &mut PodCondition, context: &Context<'_>) {
    if condition.status == "False" {
        return;
    }
    let status = context.pod.status.as_ref();
    let mut current = status
        .into_iter()
        .flat_map(|it| it.conditions.iter().flatten());
    let current = current.find(|it| it.type_ == READY && it.status == "False");
    // The transition keeps its time, so that the status is written once.
    let since = current.and_then(|it| it.last_transition_time.clone());

    condition.status = "False".to_owned();
    condition.reason = Some(REMOTE_UNAVAILABLE.to_owned());
    condition.message = Some("The virtual node of the pod is not ready".to_owned());
    condition.last_transition_time = since.or(Some(Time(context.now)));
}
