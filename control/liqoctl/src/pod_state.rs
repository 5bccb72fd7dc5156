//! Why a pod does not run. PURE.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// Reasons of containers that start without a failure.
const STARTING: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Returns why a pod does not run, if its status contains a reason: that of a container, or of the scheduler.
pub(crate) fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut containers = init.chain(status.container_statuses.iter().flatten());

    containers
        .find_map(of_container)
        .or_else(|| unscheduled(pod))
}

/// Returns the scheduler's message about a pod that it has not bound to a node.
pub(crate) fn unscheduled(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let mut failed = conditions.filter(|it| it.type_ == "PodScheduled" && it.status == "False");

    failed.find_map(|condition| condition.message.clone())
}

/// Returns the failure of a container that waits.
fn of_container(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.clone()?;
    let is_failure = !STARTING.contains(&reason.as_str());

    is_failure.then(|| match &waiting.message {
        Some(message) => format!("{reason}: {message}"),
        None => reason,
    })
}
