//! Statuses that are written a moment later, together with those that follow.
//!
//! While a pod starts or ends, the provider reports several statuses within a second, of which only some concern anybody: the
//! phase, and whether the pod is ready. Each write of the others costs the API server as much as those.

use control_runtime::{Action, Env, Key, Plan, Resource, Write};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time for which a status is not written.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Fields of a status that are written at once.
const URGENT: [&str; 3] = ["phase", "reason", "message"];

/// Since when statuses are not written, by the names of the pods.
#[derive(Debug, Default)]
pub(super) struct Delayed(BTreeMap<Key, Instant>);

impl Delayed {
    /// Takes the write of a status out of the plan of a pod if it may follow later.
    pub(super) fn plan(
        &mut self,
        key: &Key,
        local: Option<&Pod>,
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        let status = plan.writes.iter().position(is_of_status);
        let Some((position, local)) = status.zip(local) else {
            self.0.remove(key);
            return;
        };
        let since = *self.0.entry(key.clone()).or_insert(env.at);
        let age = env.at.saturating_duration_since(since);
        let rest = DELAY_MAX.saturating_sub(age);
        if rest.is_zero() || is_urgent(&plan.writes[position], local) {
            self.0.remove(key);
            return;
        }
        plan.writes.remove(position);
        plan.requeue.push((rest, key.clone()));
    }
}

fn is_of_status(write: &Write) -> bool {
    write.subresource == Some("status") && write.object.resource == Resource::of::<Pod>()
}

/// Returns whether the change of a status concerns others: controllers, endpoints, or a user who waits.
fn is_urgent(write: &Write, local: &Pod) -> bool {
    let Action::Merge(patch) = &write.action else {
        return true;
    };
    let status = &patch["status"];
    if URGENT.iter().any(|field| status.get(field).is_some()) {
        return true;
    }
    // Endpoints do not wait for the containers of a pod that is deleted.
    let is_live = local.metadata.deletion_timestamp.is_none();
    let conditions = status["conditions"].as_array();

    is_live && conditions.is_some_and(|it| readiness(it) != readiness_of(local))
}

fn readiness(conditions: &[Value]) -> bool {
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    ready.is_some_and(|it| it["status"] == "True")
}

fn readiness_of(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}
