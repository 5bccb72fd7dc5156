//! Status of the remote pod -> status of the pod.

use super::bounds;
use super::conditions::{READY, conditions, current};
use super::container;
use super::context::Context;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Reason of the condition `Ready` while the virtual node is not ready.
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
    current(pod).iter().find(|it| it.type_ == READY)
}

/// Returns the status of a pod from that of the remote pod.
pub(crate) fn local(remote: &PodStatus, context: &Context<'_>) -> PodStatus {
    let current = context.pod.status.as_ref();
    let pod_ip = remote.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
    let pod_ip = pod_ip.and_then(context.map_ip).map(|ip| ip.to_string());
    let host_ip = context.host_ip.map(|ip| ip.to_string());

    PodStatus {
        conditions: all_conditions(remote, context),
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

fn all_conditions(remote: &PodStatus, context: &Context<'_>) -> Option<Vec<PodCondition>> {
    let of_provider = remote.conditions.as_deref();
    let mut conditions = conditions(of_provider.unwrap_or_default(), context);
    if context.is_unavailable {
        let ready = conditions.iter_mut().filter(|it| it.type_ == READY);
        ready.for_each(|condition| set_unavailable(condition, context));
    }

    (of_provider.is_some() || !conditions.is_empty()).then_some(conditions)
}

fn set_unavailable(condition: &mut PodCondition, context: &Context<'_>) {
    if condition.status == "False" {
        return;
    }
    let mut current = current(context.pod).iter();
    let current = current.find(|it| it.type_ == READY && it.status == "False");
    // The transition keeps its time, so that the status is written once.
    let since = current.and_then(|it| it.last_transition_time.clone());

    condition.status = "False".to_owned();
    condition.reason = Some(REMOTE_UNAVAILABLE.to_owned());
    condition.message = Some("The virtual node of the pod is not ready".to_owned());
    condition.last_transition_time = since.or(Some(Time(context.now)));
}
