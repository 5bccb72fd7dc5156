//! Statuses of containers.

use super::bounds;
use super::context::Context;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    ContainerUser, EphemeralContainer, LinuxContainerUser, PodSpec, PodStatus,
    ResourceRequirements, VolumeMount, VolumeMountStatus,
};

/// A container of the pod's spec, of any kind.
#[derive(Clone, Copy)]
struct Spec<'a> {
    name: &'a str,
    mounts: &'a [VolumeMount],
    restart_policy: Option<&'a str>,
    has_restart_rules: bool,
}

impl<'a> From<&'a Container> for Spec<'a> {
    fn from(container: &'a Container) -> Self {
        Self {
            name: &container.name,
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            restart_policy: container.restart_policy.as_deref(),
            has_restart_rules: container.restart_policy_rules.is_some(),
        }
    }
}

impl<'a> From<&'a EphemeralContainer> for Spec<'a> {
    fn from(container: &'a EphemeralContainer) -> Self {
        Self {
            name: &container.name,
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            restart_policy: None,
            has_restart_rules: false,
        }
    }
}

/// Returns the statuses of the containers of the pod.
pub(super) fn of_containers(
    remote: &PodStatus,
    context: &Context<'_>,
) -> Option<Vec<ContainerStatus>> {
    let containers = context.pod.spec.iter().flat_map(|it| &it.containers);
    let current = context.pod.status.as_ref();
    statuses(
        containers.map(Spec::from).collect(),
        remote.container_statuses.as_ref()?,
        current.and_then(|it| it.container_statuses.as_deref()),
        context,
    )
}

/// Returns the statuses of the init containers of the pod.
pub(super) fn of_init_containers(
    remote: &PodStatus,
    context: &Context<'_>,
) -> Option<Vec<ContainerStatus>> {
    let spec = context.pod.spec.iter();
    let containers = spec.flat_map(|it| it.init_containers.iter().flatten());
    let current = context.pod.status.as_ref();
    statuses(
        containers.map(Spec::from).collect(),
        remote.init_container_statuses.as_ref()?,
        current.and_then(|it| it.init_container_statuses.as_deref()),
        context,
    )
}

/// Returns the statuses of the ephemeral containers of the pod.
pub(super) fn of_ephemeral_containers(
    remote: &PodStatus,
    context: &Context<'_>,
) -> Option<Vec<ContainerStatus>> {
    let spec = context.pod.spec.iter();
    let containers = spec.flat_map(|it| it.ephemeral_containers.iter().flatten());
    let current = context.pod.status.as_ref();
    statuses(
        containers.map(Spec::from).collect(),
        remote.ephemeral_container_statuses.as_ref()?,
        current.and_then(|it| it.ephemeral_container_statuses.as_deref()),
        context,
    )
}

/// Returns one status for each container of the pod that the provider has a status of.
fn statuses(
    mut containers: Vec<Spec<'_>>,
    remote: &[ContainerStatus],
    current: Option<&[ContainerStatus]>,
    context: &Context<'_>,
) -> Option<Vec<ContainerStatus>> {
    let message_max = bounds::container_message_max(context.pod);
    let mut statuses = Vec::new();
    for status in remote {
        let index = containers.iter().position(|it| it.name == status.name);
        let Some(container) = index.map(|index| containers.swap_remove(index)) else {
            continue;
        };
        let mut current = current.unwrap_or_default().iter();
        let current = current.find(|it| it.name == status.name);
        let final_ = current.filter(|it| is_final(it, container, context.pod.spec.as_ref()));
        let is_terminated = status
            .state
            .as_ref()
            .is_some_and(|it| it.terminated.is_some());
        statuses.push(match final_ {
            Some(current) if !is_terminated => current.clone(),
            Some(_) | None => of(status, container, context.restarts, message_max),
        });
    }

    (!statuses.is_empty()).then_some(statuses)
}

/// Returns whether the API server refuses that a container leaves its state: it has terminated, and is not restarted.
/// The remote pod may nevertheless have been replaced by one whose container runs again.
fn is_final(current: &ContainerStatus, container: Spec<'_>, spec: Option<&PodSpec>) -> bool {
    let state = current.state.as_ref().and_then(|it| it.terminated.as_ref());
    let of_pod = spec.and_then(|it| it.restart_policy.as_deref());
    let policies = [of_pod, container.restart_policy];
    let is_restarted = |state: &ContainerStateTerminated| {
        let is_failed = state.exit_code != 0;
        policies.contains(&Some("Always")) || policies.contains(&Some("OnFailure")) && is_failed
    };
    state.is_some_and(|state| !container.has_restart_rules && !is_restarted(state))
}

fn of(
    remote: &ContainerStatus,
    container: Spec<'_>,
    restarts: i32,
    message_max: usize,
) -> ContainerStatus {
    ContainerStatus {
        allocated_resources: remote.allocated_resources.as_ref().map(bounds::amounts),
        container_id: remote.container_id.as_deref().map(bounds::id),
        image: bounds::id(&remote.image),
        image_id: bounds::id(&remote.image_id),
        last_state: remote.last_state.as_ref().map(|it| state(it, message_max)),
        name: remote.name.clone(),
        ready: remote.ready,
        resources: remote.resources.as_ref().map(resources),
        restart_count: remote.restart_count.max(0).saturating_add(restarts.max(0)),
        started: remote.started,
        state: remote.state.as_ref().map(|it| state(it, message_max)),
        stop_signal: bounds::reason(remote.stop_signal.as_deref()),
        user: remote.user.as_ref().map(user),
        volume_mounts: mounts(remote, container),
        ..ContainerStatus::default()
    }
}

/// Returns the state, which is one of the three.
fn state(remote: &ContainerState, message_max: usize) -> ContainerState {
    let message = |text: &Option<String>| text.as_ref().map(|it| bounds::cut(it, message_max));
    if let Some(terminated) = &remote.terminated {
        let terminated = ContainerStateTerminated {
            container_id: terminated.container_id.as_deref().map(bounds::id),
            exit_code: terminated.exit_code,
            finished_at: terminated.finished_at.clone(),
            message: message(&terminated.message),
            reason: bounds::reason(terminated.reason.as_deref()),
            signal: terminated.signal,
            started_at: terminated.started_at.clone(),
        };
        return ContainerState {
            terminated: Some(terminated),
            ..ContainerState::default()
        };
    }
    if let Some(running) = &remote.running {
        return ContainerState {
            running: Some(running.clone()),
            ..ContainerState::default()
        };
    }

    ContainerState {
        waiting: remote.waiting.as_ref().map(|it| ContainerStateWaiting {
            message: message(&it.message),
            reason: bounds::reason(it.reason.as_deref()),
        }),
        ..ContainerState::default()
    }
}

fn resources(remote: &ResourceRequirements) -> ResourceRequirements {
    ResourceRequirements {
        claims: None,
        limits: remote.limits.as_ref().map(bounds::amounts),
        requests: remote.requests.as_ref().map(bounds::amounts),
    }
}

fn user(remote: &ContainerUser) -> ContainerUser {
    let linux = remote.linux.as_ref().map(|it| LinuxContainerUser {
        gid: it.gid,
        supplemental_groups: it
            .supplemental_groups
            .as_ref()
            .map(|groups| groups.iter().take(bounds::GROUPS_MAX).copied().collect()),
        uid: it.uid,
    });
    ContainerUser { linux }
}

/// Returns the state of the mounts that the container has.
fn mounts(remote: &ContainerStatus, container: Spec<'_>) -> Option<Vec<VolumeMountStatus>> {
    let statuses = remote.volume_mounts.as_ref()?;
    let known = |status: &&VolumeMountStatus| {
        let mut mounts = container.mounts.iter();
        mounts.any(|it| it.name == status.name && it.mount_path == status.mount_path)
    };
    let statuses = statuses.iter().filter(known).take(container.mounts.len());

    let statuses = statuses.map(|it| VolumeMountStatus {
        mount_path: it.mount_path.clone(),
        name: it.name.clone(),
        read_only: it.read_only,
        recursive_read_only: bounds::reason(it.recursive_read_only.as_deref()),
        ..VolumeMountStatus::default()
    });
    Some(statuses.collect())
}
