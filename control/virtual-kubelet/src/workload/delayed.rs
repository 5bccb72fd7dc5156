//! Statuses that are written a moment later, together with those that follow, and with the label of an offloaded pod.
//!
//! While a pod starts or ends, the provider reports several statuses, of which only some concern anybody: the phase, and whether
//! the pod is ready. Each write of the others costs the API server as much as those. The provider decides how often phase and readiness
//! change, so after some changes these wait as the others do.

use super::allowance::{Allowance, Rate};
use super::plan::{is_live, is_of_status};
use super::trailing::trailing;
use crate::pod::status::{is_ready, is_unavailable};
use control_runtime::{Action, Env, Key, Plan, Write};
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time for which a status is not written that a user sees: for instance why a container waits.
const DELAY_MAX: Duration = Duration::from_secs(1);

/// Longest time for which a status is not written that says nothing new: the start of a pod follows its binding, and that of a
/// pod that is deleted ends with it.
const MINOR_DELAY_MAX: Duration = Duration::from_secs(10);

/// Fields of a status that are written at once.
const URGENT: [&str; 3] = ["phase", "reason", "message"];

/// Statuses of a pod that are written at once.
const AT_ONCE: Rate = Rate {
    interval: Duration::from_secs(10),
    burst: 5,
};

/// Fields of a status that follow from the binding of a pod.
const MINOR: [&str; 5] = ["conditions", "hostIP", "hostIPs", "qosClass", "startTime"];

/// Statuses that are not written yet, by the names of the pods.
#[derive(Debug, Default)]
pub(super) struct Delayed {
    /// Since when they are not written.
    since: BTreeMap<Key, Instant>,
    /// Statuses that were written at once.
    at_once: BTreeMap<Key, Allowance>,
    /// Pods whose status follows that of other pods.
    trailing: BTreeMap<Key, Trailing>,
}

#[derive(Debug)]
struct Trailing {
    delay: Duration,
    /// The end of the delay, which begins when the pod is planned.
    until: Option<Instant>,
}

impl Delayed {
    /// Takes the loss of the Node, or its end, by which the readiness of its pods changes at once. That of a pod whose
    /// containers are not ready does not change.
    pub(super) fn change<'a>(
        &mut self,
        pods: impl Iterator<Item = (&'a Key, &'a Pod)>,
        is_lost: bool,
    ) {
        let changes = |pod: &Pod| match is_lost {
            true => is_ready(pod),
            false => is_unavailable(pod),
        };
        let changing = pods.filter(|(_, pod)| is_live(pod) && changes(pod));
        let delays = trailing(changing).into_iter();
        let trailing = delays.map(|(key, delay)| (key, Trailing { delay, until: None }));
        self.trailing = trailing.collect();
    }

    /// Takes the write of a status out of the plan of a pod if it may follow later.
    pub(super) fn plan(
        &mut self,
        key: &Key,
        local: Option<&Pod>,
        env: &Env<'_>,
        plan: &mut Plan<Key>,
    ) {
        if local.is_none() {
            self.at_once.remove(key);
        }
        let status = plan.writes.iter().position(is_of_status);
        let Some((position, local)) = status.zip(local) else {
            self.since.remove(key);
            self.trailing.remove(key);
            return;
        };
        let since = *self.since.entry(key.clone()).or_insert(env.at);
        let age = env.at.saturating_duration_since(since);
        let mut delay = delay(&plan.writes[position], local);
        let behind = self.rest_behind_others(key, env.at);
        if delay.is_zero() && behind.is_zero() && age < DELAY_MAX {
            let at_once = self.at_once.entry(key.clone()).or_default();
            if at_once.take(AT_ONCE, env.at).is_err() {
                delay = DELAY_MAX;
            }
        }
        let rest = delay.saturating_sub(age).max(behind);
        if rest.is_zero() {
            self.since.remove(key);
            self.trailing.remove(key);
            return;
        }
        plan.writes.remove(position);
        plan.requeue.push((rest, key.clone()));
    }

    /// Returns how long the status of a pod still follows those of others.
    fn rest_behind_others(&mut self, key: &Key, now: Instant) -> Duration {
        let Some(trailing) = self.trailing.get_mut(key) else {
            return Duration::ZERO;
        };
        let until = *trailing.until.get_or_insert(now + trailing.delay);

        until.saturating_duration_since(now)
    }
}

/// Returns how long the change of a status and of the labels may wait.
fn delay(write: &Write, local: &Pod) -> Duration {
    let Action::Merge(patch) = &write.action else {
        return Duration::ZERO;
    };
    let delay = match patch.get("status") {
        Some(status) => delay_of(status, local),
        None => DELAY_MAX,
    };
    match patch.get("metadata") {
        Some(_) => delay.min(DELAY_MAX),
        None => delay,
    }
}

/// Returns how long the change of a status may wait. One that concerns others does not: controllers, endpoints, or a user who
/// waits.
fn delay_of(status: &Value, local: &Pod) -> Duration {
    let is_urgent = URGENT.iter().any(|field| status.get(field).is_some());
    let conditions = status["conditions"].as_array();
    if local.metadata.deletion_timestamp.is_some() {
        // Endpoints do not wait for the containers of the pod, and a controller that does, such as that of Jobs, has a finalizer.
        let is_awaited = local.metadata.finalizers.iter().flatten().next().is_some();
        return match is_urgent && is_awaited {
            true => Duration::ZERO,
            false => MINOR_DELAY_MAX,
        };
    }
    if is_urgent || conditions.is_some_and(|it| readiness(it) != is_ready(local)) {
        return Duration::ZERO;
    }
    let is_minor = status
        .as_object()
        .is_some_and(|it| it.keys().all(|field| is_minor(field, local)));
    match is_minor && !conditions.is_some_and(|it| is_unscheduled(it)) {
        true => MINOR_DELAY_MAX,
        false => DELAY_MAX,
    }
}

/// Returns whether a field of a status says nothing new.
fn is_minor(field: &str, local: &Pod) -> bool {
    // The generation is awaited after a change of the pod.
    let is_unchanged = local.metadata.generation.is_none_or(|it| it <= 1);

    MINOR.contains(&field) || field == "observedGeneration" && is_unchanged
}

fn is_unscheduled(conditions: &[Value]) -> bool {
    let mut conditions = conditions.iter();
    conditions.any(|it| it["type"] == "PodScheduled" && it["status"] != "True")
}

fn readiness(conditions: &[Value]) -> bool {
    let ready = conditions.iter().find(|it| it["type"] == "Ready");
    ready.is_some_and(|it| it["status"] == "True")
}
