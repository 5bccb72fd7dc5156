//! Whether this process stops for good: then the node gets back what it had.
//!
//! A pod of a DaemonSet is stopped in the same way when it is restarted and when the
//! DaemonSet is removed; only the API server knows which it is. In doubt everything stays,
//! for traffic flows on without this process.

use control_api::fabric::Object;
use control_source::{Source, Watch};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::Api;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long the API server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How long after the rights the ConfigMap may go: they go together.
const REST_MAX: Duration = Duration::from_secs(3);

/// Forbidden and unauthorized.
const NO_RIGHTS: [u16; 2] = [401, 403];

/// What the API server says of the DaemonSet that made this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// It is there.
    Present,
    /// It is gone, or about to go.
    Gone,
    /// This process may not ask any more.
    Refused,
    /// Nothing.
    Unknown,
}

/// What is to be done with the node's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Stay,
    Remove,
    /// Whatever becomes of the cluster's ConfigMap.
    Wait,
}

/// Returns whether the installation is being removed.
pub(crate) async fn is_removed(source: &mut Source, daemon_set: Option<&str>) -> bool {
    let (Source::Cluster(watch), Some(name)) = (source, daemon_set) else {
        return false;
    };
    let answer = ask(watch, name).await;
    match verdict(answer) {
        Verdict::Stay => {
            if answer == Answer::Unknown {
                tracing::warn!(
                    "the API server does not answer: the node's state stays; \
                     `route-agent cleanup` removes it"
                );
            }
            false
        }
        Verdict::Remove => true,
        Verdict::Wait => {
            let removed = timeout_at(Instant::now() + REST_MAX, config_map_gone(watch)).await;
            if removed.is_err() {
                tracing::warn!(
                    "this process has lost its rights, but the cluster's ConfigMap is there: \
                     the node's state stays; `route-agent cleanup` removes it"
                );
            }
            removed.is_ok()
        }
    }
}

fn verdict(answer: Answer) -> Verdict {
    match answer {
        Answer::Present | Answer::Unknown => Verdict::Stay,
        Answer::Gone => Verdict::Remove,
        Answer::Refused => Verdict::Wait,
    }
}

async fn ask(watch: &Watch, name: &str) -> Answer {
    let api = Api::<DaemonSet>::namespaced(watch.client().clone(), watch.namespace());
    match timeout(ANSWER_MAX, api.get_metadata_opt(name)).await {
        Ok(answer) => {
            read(answer.map(|found| found.map(|it| it.metadata.deletion_timestamp.is_some())))
        }
        Err(_) => Answer::Unknown,
    }
}

/// Reads whether the DaemonSet is there, and if so, whether it is about to go.
fn read(answer: Result<Option<bool>, kube::Error>) -> Answer {
    match answer {
        Ok(Some(false)) => Answer::Present,
        Ok(Some(true) | None) => Answer::Gone,
        Err(kube::Error::Api(status)) if NO_RIGHTS.contains(&status.code) => Answer::Refused,
        Err(_) => Answer::Unknown,
    }
}

/// Completes when the ConfigMap is gone: an open watch survives the loss of rights.
async fn config_map_gone(watch: &mut Watch) {
    while (watch.store().iter()).any(|object| matches!(object, Object::ConfigMap(_))) {
        watch.changed().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    #[test]
    fn a_restart_leaves_the_nodes_state_and_a_removal_takes_it() {
        for (answer, expected) in [
            (Ok(Some(false)), Verdict::Stay),
            (Ok(Some(true)), Verdict::Remove),
            (Ok(None), Verdict::Remove),
            (Err(refusal(403)), Verdict::Wait),
            (Err(refusal(401)), Verdict::Wait),
            (Err(refusal(500)), Verdict::Stay),
        ] {
            assert_eq!(verdict(read(answer)), expected);
        }
    }

    fn refusal(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status {
            code,
            ..Status::default()
        }))
    }
}
