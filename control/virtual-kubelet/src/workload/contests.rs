//! Limits how often a ShadowPod is changed that another client of the provider changes back.

use super::allowance::{Allowance, Rate};
use super::controller::is_of_shadow_pod;
use super::plan::Workload;
use control_runtime::{Action, Digest, Env, Key, Plan, Write};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::time::Duration;

/// Writes of one state: the first one, and three restorations at once.
const WRITES: Rate = Rate {
    interval: Duration::from_secs(60),
    burst: 4,
};

/// The states that were written last, by the names of the pods.
#[derive(Debug, Default)]
pub(super) struct Contests(BTreeMap<Key, Contest>);

#[derive(Debug)]
struct Contest {
    state: Digest,
    writes: Allowance,
}

impl Contests {
    /// Forgets a pod that is gone, or whose change has failed: it is repeated after the backoff of its failures.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.0.remove(pod);
    }

    /// Takes the change of a ShadowPod out of the plan of its pod if the same state was written too often. Another state of the pod
    /// is written at once.
    pub(super) fn plan(
        &mut self,
        workload: &Workload<'_>,
        local: Option<&Pod>,
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        let change = plan.writes.iter().position(is_change);
        let (Some(position), Some(local)) = (change, local) else {
            return;
        };
        let state = state(local);
        let new = || Contest {
            state,
            writes: Allowance::default(),
        };
        let contest = self.0.entry(workload.key.clone()).or_insert_with(new);
        if contest.state != state {
            *contest = new();
        }
        if let Err(rest) = contest.writes.take(WRITES, env.at) {
            plan.writes.remove(position);
            plan.requeue.push((rest, workload.key.clone()));
            let note = format!(
                "another client of the provider changes the ShadowPod again and again, so it is restored every {} s: remove that client's \
                 right to change it",
                WRITES.interval.as_secs()
            );
            plan.events.push(workload.failed_reflection(&note));
        }
    }
}

fn is_change(write: &Write) -> bool {
    is_of_shadow_pod(write) && matches!(write.action, Action::Merge(_))
}

/// Returns the digest of what a ShadowPod follows.
fn state(pod: &Pod) -> Digest {
    let metadata = &pod.metadata;
    Digest::of(&(
        &metadata.labels,
        &metadata.annotations,
        &metadata.generation,
        &metadata.uid,
    ))
}
