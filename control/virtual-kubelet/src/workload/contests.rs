//! Limits how often a ShadowPod is changed that another client of the provider changes back.

use super::controller::is_of_shadow_pod;
use super::plan::Workload;
use control_runtime::{Action, Digest, Env, Key, Plan, Restores, Write};
use k8s_openapi::api::core::v1::Pod;

/// The states that were written last, by the names of the pods.
#[derive(Debug, Default)]
pub(super) struct Contests(Restores<Key>);

impl Contests {
    /// Forgets a pod that is gone, or whose change has failed: it is repeated after the backoff of its failures.
    pub(super) fn forget(&mut self, pod: &Key) {
        self.0.forget(pod);
    }

    /// Takes the field managers of a ShadowPod, the latest first. Returns whether the pod has to be planned again.
    pub(super) fn read<'a>(
        &mut self,
        pod: &Key,
        managers: impl Iterator<Item = &'a str>,
        own: &str,
    ) -> bool {
        self.0.name(pod, managers, own);

        self.0.is_contested(pod)
    }

    /// Takes the change of a ShadowPod out of the plan of its pod if the same state was restored too often. Another state of the pod
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
        let (pod, state) = (workload.key, state(local));
        let Some(rest) = self.0.wait(pod, state, env.at) else {
            return self.0.wrote(pod, state, env.at);
        };
        let change = plan.writes.remove(position);
        plan.requeue.push((rest, pod.clone()));
        match self.0.other_manager(pod) {
            Some(other_manager) => {
                let note = format!(
                    "{other_manager} of the provider changes the ShadowPod again and again, so it is restored once a minute: remove \
                     the right to change it there"
                );
                plan.events.push(workload.failed_reflection(&note));
            }
            // The object names its field managers.
            None => plan.reads.push(change.object),
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
