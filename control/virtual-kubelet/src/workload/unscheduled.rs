//! Pods that the provider does not place: they return after the time of the annotation `liqo.io/return-unschedulable`.
//!
//! A pod is bound to its Node for good. So it is deleted, and the controller that owns it creates another one, which the scheduler
//! can place elsewhere. A pod without such an owner would be lost, and stays.

use super::offloading;
use super::plan::Workload;
use crate::pod::status::cut;
use control_api::annotations;
use control_runtime::{Action, Env, Key, Plan, Write};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use std::collections::BTreeMap;
use std::time::Instant;

/// Type and reason of the condition of a pod that the scheduler of the provider does not place.
const SCHEDULED: &str = "PodScheduled";
const UNSCHEDULABLE: &str = "Unschedulable";

/// Reason of the Event about a pod that returns.
const RETURNED: &str = "ReturnedUnschedulable";

/// Reason of the Event about a pod that stays.
const NOT_RETURNED: &str = "FailedReturn";

/// Longest message of the provider's scheduler that is published, in bytes. The note of an Event has 1,024.
const MESSAGE_LEN_MAX: usize = 512;

/// When this process has first seen that the provider does not place a pod, by its name. Clocks of providers do not count.
#[derive(Debug, Default)]
pub(super) struct Unscheduled(BTreeMap<Key, Instant>);

impl Unscheduled {
    /// Forgets a pod that is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Plans the end of a pod that the provider has not placed in time.
    pub(super) fn plan(&mut self, workload: &Workload<'_>, env: &Env<'_>, plan: &mut Plan<Key>) {
        let key = workload.key;
        let Some((local, message)) = waiting(workload) else {
            return self.forget(key);
        };
        let limit = match offloading::return_after(workload.cache, &key.namespace) {
            Ok(Some(limit)) => limit,
            Ok(None) => return self.forget(key),
            Err(error) => {
                plan.events.push(workload.warning(NOT_RETURNED, error));
                return self.forget(key);
            }
        };
        let since = *self.0.entry(key.clone()).or_insert(env.at);
        let rest = limit.saturating_sub(env.at.saturating_duration_since(since));
        if !rest.is_zero() {
            return plan.requeue.push((rest, key.clone()));
        }
        let message = cut(message, MESSAGE_LEN_MAX);
        let cause = format!(
            "the provider has not placed the pod for {} s",
            limit.as_secs()
        );
        if !has_controller(local) {
            let note = format!(
                "{cause}, and the pod has no controller that would replace it, so it stays: delete it. The provider's scheduler: \
                 {message}"
            );
            plan.events.push(workload.warning(NOT_RETURNED, note));
            return;
        }
        let note = format!(
            "{cause}, so it is deleted, as annotation {} of the NamespaceOffloading requests, and its controller creates another \
             one. The provider's scheduler: {message}",
            annotations::RETURN_UNSCHEDULABLE
        );
        plan.events.push(workload.warning(RETURNED, note));
        // The status of a pod that is deleted need not follow.
        let mut write = Write::new(workload.local_ref(), Action::Delete);
        write.uid.clone_from(&local.metadata.uid);
        write.is_last = true;
        plan.writes.push(write);
    }
}

/// Returns a pod of the Node that the provider does not place now, and why.
fn waiting<'a>(workload: &Workload<'a>) -> Option<(&'a Pod, &'a str)> {
    let (local, remote) = workload.running()?;

    Some((local, message(condition(remote)?)))
}

/// Returns the condition of a pod that the scheduler does not place.
fn condition(remote: &Pod) -> Option<&PodCondition> {
    let conditions = remote.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|it| it.type_ == SCHEDULED)?;
    let is_waiting =
        scheduled.status == "False" && scheduled.reason.as_deref() == Some(UNSCHEDULABLE);

    is_waiting.then_some(scheduled)
}

fn message(condition: &PodCondition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

/// Returns whether a controller replaces a pod that is deleted.
fn has_controller(pod: &Pod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}
