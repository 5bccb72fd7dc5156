//! Detects the removal of the installation, after which the agent removes its kernel state.
//!
//! Kubernetes stops the pod of a DaemonSet in the same way for a restart and after the deletion
//! of the DaemonSet; only the API server knows the difference. In doubt the state stays,
//! because traffic continues without this process.

use control_api::fabric::Object;
use control_source::{Source, Watch};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::Api;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Time-out of a request to the API server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// From the loss of our rights to the deletion of the ConfigMap: an uninstall deletes both.
const DELETION_TIMEOUT: Duration = Duration::from_secs(3);

/// HTTP status codes Unauthorized and Forbidden.
const NO_RIGHTS: [u16; 2] = [401, 403];

/// State of the DaemonSet of this pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DaemonSetState {
    Exists,
    /// Deleted, or with a deletion timestamp.
    Deleted,
    /// The rights of this process are gone.
    Forbidden,
    /// Time-out, or another error.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Remove,
    /// Removes if the cluster's ConfigMap is deleted, too.
    AwaitConfigMap,
}

/// Returns whether the installation is being removed.
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

/// `is_terminating` is `None` if the DaemonSet does not exist.
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

/// Completes when the ConfigMap is deleted: an open watch survives the loss of rights.
async fn config_map_deleted(watch: &mut Watch) {
    while (watch.store().iter()).any(|object| matches!(object, Object::ConfigMap(_))) {
        watch.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

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
