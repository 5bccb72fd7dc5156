//! Statuses of pods without a remote pod.

use super::conditions::{CONTAINERS_READY, READY, is_of_kubelet};
use control_api::offloading::shadow_pod::ShadowPodPhase;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Reason of a pod that has not started, because its namespace is not offloaded to the virtual node, or the provider refuses it.
pub(crate) const OFFLOADING_BACK_OFF: &str = "OffloadingBackOff";
/// Reason of a pod that has failed, because its namespace is no longer offloaded to the virtual node.
pub(crate) const OFFLOADING_ABORTED: &str = "OffloadingAborted";
/// Reason of a pod whose remote pod was deleted after it had ended.
pub(crate) const REMOTE_POD_TERMINATED: &str = "RemotePodTerminated";

/// Reason of a pod that has started and whose remote pod is gone.
const REMOTE_POD_LOST: &str = "RemotePodLost";
/// Message of such a pod, before the provider has refused another one.
const LOST: &str = "The pod does not exist at the provider";

/// How a container ends that runs no longer.
#[derive(Clone, Copy)]
struct Rejection<'a> {
    phase: &'static str,
    reason: &'static str,
    message: &'a str,
    /// Exit code of containers that have not terminated; none if they may start later.
    exit_code: Option<i32>,
}

/// Returns the status of a pod whose namespace is not offloaded to the virtual node: pending if the pod has not started,
/// else failed. A pod that has ended keeps its status.
pub(crate) fn fallback(local: &Pod, now: Timestamp) -> PodStatus {
    let status = local.status.clone().unwrap_or_default();
    let has_containers = [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .any(|it| !it.is_empty());

    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => status,
        Some("Pending") | None if !has_containers => {
            let message = "The namespace is not offloaded to the virtual node of the pod";
            waiting(local, message, now)
        }
        Some(_) | None => rejected(
            status,
            Rejection {
                phase: "Failed",
                reason: OFFLOADING_ABORTED,
                message: "The namespace is no longer offloaded to the virtual node of the pod",
                exit_code: Some(1),
            },
            now,
        ),
    }
}

/// Returns the status of a pod that has not started, and why it waits.
pub(crate) fn waiting(local: &Pod, message: &str, now: Timestamp) -> PodStatus {
    let rejection = Rejection {
        phase: "Pending",
        reason: OFFLOADING_BACK_OFF,
        message,
        exit_code: None,
    };

    rejected(local.status.clone().unwrap_or_default(), rejection, now)
}

/// Returns whether a pod has the status of [`lost`].
pub(crate) fn is_lost(local: &Pod) -> bool {
    let status = local.status.as_ref();
    status.is_some_and(|it| it.reason.as_deref() == Some(REMOTE_POD_LOST))
}

/// Returns the status of a pod that has started and whose remote pod is gone, and why no other one runs. Its address may already be
/// that of another pod of the provider, so no Service may publish it.
pub(crate) fn lost(local: &Pod, cause: Option<&str>, now: Timestamp) -> PodStatus {
    let mut status = local.status.clone().unwrap_or_default();
    let is_known = is_lost(local);
    // A cause lasts until there is a remote pod: the Event that names it may expire.
    if let Some(cause) = cause.or((!is_known).then_some(LOST)) {
        status.message = Some(cause.to_owned());
    }
    status.reason = Some(REMOTE_POD_LOST.to_owned());
    status.pod_ip = None;
    status.pod_ips = None;
    let conditions = status.conditions.iter_mut().flatten();
    let of_readiness =
        conditions.filter(|it| [READY, CONTAINERS_READY].contains(&it.type_.as_str()));
    of_readiness.for_each(|it| set_false(it, REMOTE_POD_LOST, now));
    for container in status.container_statuses.iter_mut().flatten() {
        container.ready = false;
        container.started = container.started.map(|_| false);
    }

    status
}

/// Returns the status of a pod whose remote pod is absent although its ShadowPod has ended in `phase`; none if it has
/// not ended.
pub(crate) fn terminated(local: &Pod, phase: ShadowPodPhase, now: Timestamp) -> Option<PodStatus> {
    let (phase, exit_code) = match phase {
        ShadowPodPhase::Succeeded => ("Succeeded", 0),
        ShadowPodPhase::Failed => ("Failed", 1),
        ShadowPodPhase::Pending | ShadowPodPhase::Running | ShadowPodPhase::Unknown => return None,
    };
    let status = local.status.clone().unwrap_or_default();
    if status.phase.as_deref() == Some(phase) {
        return Some(status);
    }
    let rejection = Rejection {
        phase,
        reason: REMOTE_POD_TERMINATED,
        message: "The remote pod was deleted after it had ended",
        exit_code: Some(exit_code),
    };

    Some(rejected(status, rejection, now))
}

fn rejected(mut status: PodStatus, rejection: Rejection<'_>, now: Timestamp) -> PodStatus {
    status.phase = Some(rejection.phase.to_owned());
    status.reason = Some(rejection.reason.to_owned());
    status.message = Some(rejection.message.to_owned());
    let conditions = status.conditions.iter_mut().flatten();
    for condition in conditions.filter(|it| is_of_kubelet(it)) {
        set_false(condition, rejection.reason, now);
    }
    for container in status.container_statuses.iter_mut().flatten() {
        container.ready = false;
        container.started = container.started.map(|_| false);
        terminate(container, rejection, now);
    }
    let init = status.init_container_statuses.iter_mut().flatten();
    let others = init.chain(status.ephemeral_container_statuses.iter_mut().flatten());
    for container in others {
        terminate(container, rejection, now);
    }

    status
}

fn set_false(condition: &mut PodCondition, reason: &str, now: Timestamp) {
    if condition.status == "True" {
        condition.status = "False".to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = None;
        condition.last_transition_time = Some(Time(now));
    }
}

fn terminate(container: &mut ContainerStatus, rejection: Rejection<'_>, now: Timestamp) {
    let state = container.state.take().unwrap_or_default();
    let Some(exit_code) = rejection.exit_code.filter(|_| state.terminated.is_none()) else {
        container.state = Some(state);
        return;
    };
    container.ready = false;
    container.state = Some(ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: container.container_id.clone(),
            exit_code,
            finished_at: Some(Time(now)),
            reason: Some(rejection.reason.to_owned()),
            started_at: state.running.and_then(|it| it.started_at),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    });
}
