//! Detects whether Liqo is being uninstalled when the agent stops.
//!
//! After an uninstall, the agent must remove its kernel state. After a restart, the state must
//! stay, because the kernel forwards traffic without the agent. The kubelet stops the pod in the
//! same way in both cases, so the agent asks the API server whether its DaemonSet exists. If the
//! API server does not reply, the state stays.

use control_source::{Source, Watch};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::Api;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Time-out of the request for the DaemonSet.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which an agent that has lost its RBAC rights waits for the deletion of the cluster's
/// ConfigMap. An uninstall deletes both, in any order.
const DELETION_TIMEOUT: Duration = Duration::from_secs(3);

/// HTTP status codes that the API server returns if the agent has no right to read the DaemonSet:
/// Unauthorized and Forbidden.
const NO_RIGHTS: [u16; 2] = [401, 403];

/// State of the DaemonSet that owns this pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonSetState {
    Exists,
    /// The DaemonSet does not exist, or has a deletion timestamp.
    Deleted,
    /// The agent has no right to read the DaemonSet any more.
    Forbidden,
    /// The request timed out, or failed with another error.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Remove,
    /// Remove the kernel state only if the cluster's ConfigMap is deleted within
    /// [`DELETION_TIMEOUT`]. The loss of the rights alone may be a mistake of an administrator.
    AwaitConfigMap,
}

/// Returns whether Liqo is being uninstalled. If so, the agent must remove its kernel state.
pub(crate) async fn is_removed(source: &mut Source, daemon_set: Option<&str>) -> bool {
    let (Source::Cluster(watch), Some(name)) = (source, daemon_set) else {
        return false;
    };
    let state = daemon_set_state(watch, name).await;
    match verdict(state) {
        Verdict::Keep => {
            if state == DaemonSetState::Unknown {
                tracing::warn!(
                    "the API server is unreachable: the node's state stays; \
                     `route-agent cleanup` removes it"
                );
            }
            false
        }
        Verdict::Remove => true,
        Verdict::AwaitConfigMap => {
            let deadline = Instant::now() + DELETION_TIMEOUT;
            let deleted = timeout_at(deadline, config_map_deleted(watch)).await;
            if deleted.is_err() {
                tracing::warn!(
                    "this process has lost its rights, but the cluster's ConfigMap exists: \
                     the node's state stays; `route-agent cleanup` removes it"
                );
            }
            deleted.is_ok()
        }
    }
}

fn verdict(state: DaemonSetState) -> Verdict {
    match state {
        DaemonSetState::Exists | DaemonSetState::Unknown => Verdict::Keep,
        DaemonSetState::Deleted => Verdict::Remove,
        DaemonSetState::Forbidden => Verdict::AwaitConfigMap,
    }
}

async fn daemon_set_state(watch: &Watch, name: &str) -> DaemonSetState {
    let api = Api::<DaemonSet>::namespaced(watch.client().clone(), watch.namespace());
    match timeout(REQUEST_TIMEOUT, api.get_metadata_opt(name)).await {
        Ok(found) => {
            parse(found.map(|found| found.map(|it| it.metadata.deletion_timestamp.is_some())))
        }
        Err(_) => DaemonSetState::Unknown,
    }
}

/// Converts the API server's response. `is_terminating` is `None` if the DaemonSet does not exist,
/// and `Some(true)` if the DaemonSet has a deletion timestamp.
fn parse(is_terminating: Result<Option<bool>, kube::Error>) -> DaemonSetState {
    match is_terminating {
        Ok(Some(false)) => DaemonSetState::Exists,
        Ok(Some(true) | None) => DaemonSetState::Deleted,
        Err(kube::Error::Api(status)) if NO_RIGHTS.contains(&status.code) => {
            DaemonSetState::Forbidden
        }
        Err(_) => DaemonSetState::Unknown,
    }
}

/// Completes when the cluster's ConfigMap is deleted. A watch that is open stays open after the
/// agent has lost its rights, so the agent is notified of the deletion.
async fn config_map_deleted(watch: &mut Watch) {
    while watch.has_cluster_id() {
        watch.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chart_tests::roles::{Rights, Role, assert_exact};
    use control_source::{Scope, registrations};
    use kube::core::Status;

    #[test]
    fn the_charts_roles_are_the_rights_that_the_agent_needs() {
        let daemon_set = Rights {
            role: Role::Namespace,
            group: "apps",
            resource: "daemonsets",
            name: "liqo-fabric",
            verbs: &["get"],
        };

        let all = registrations("liqo", Scope::Node);

        assert_exact("liqo-fabric", "liqo", &all, &[daemon_set]);
    }

    #[test]
    fn a_restart_keeps_the_nodes_state_and_an_uninstall_removes_it() {
        for (found, expected) in [
            (Ok(Some(false)), Verdict::Keep),
            (Ok(Some(true)), Verdict::Remove),
            (Ok(None), Verdict::Remove),
            (Err(error(403)), Verdict::AwaitConfigMap),
            (Err(error(401)), Verdict::AwaitConfigMap),
            (Err(error(500)), Verdict::Keep),
        ] {
            assert_eq!(verdict(parse(found)), expected);
        }
    }

    fn error(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }))
    }
}
