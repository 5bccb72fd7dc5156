//! Restarts of a pod across the remote pods that replaced each other.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

/// Restarts that the counters of the present remote pod do not contain.
///
/// A virtual kubelet that has just started infers them from the pod's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Restarts {
    /// UID of the present remote pod.
    uid: Option<String>,
    /// Restarts before it.
    accumulated: i32,
    /// The highest counter of the present remote pod.
    latest: i32,
}

impl Restarts {
    /// Takes note of a remote pod, and returns the restarts to add to its counters. A new remote pod is a restart.
    pub(crate) fn observe(&mut self, local: &PodStatus, uid: &str, remote: &PodStatus) -> i32 {
        match self.uid.as_deref() {
            Some(known) if known == uid => {}
            Some(_) => {
                let before = self.accumulated.saturating_add(self.latest);
                self.accumulated = before.saturating_add(1);
                self.latest = 0;
            }
            None => self.accumulated = inferred(local, remote),
        }
        self.uid = Some(uid.to_owned());
        self.latest = self.latest.max(highest(remote));

        self.accumulated
    }
}

/// Returns the restarts that the pod's status has in addition to those of the remote pod.
fn inferred(local: &PodStatus, remote: &PodStatus) -> i32 {
    let remote = statuses(remote).map(|it| (it.name.as_str(), it.restart_count));
    let remote: Vec<_> = remote.collect();
    let difference = |local: &ContainerStatus| {
        let remote = remote.iter().find(|(name, _)| *name == local.name);
        let remote = remote.map_or(0, |(_, count)| (*count).max(0));
        local.restart_count.saturating_sub(remote)
    };
    statuses(local).map(difference).max().unwrap_or(0).max(0)
}

fn highest(status: &PodStatus) -> i32 {
    let counts = statuses(status).map(|it| it.restart_count);
    counts.max().unwrap_or(0).max(0)
}

fn statuses(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten()
}
