use super::Context;
use crate::pod::tests::pod;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

mod conditions;
mod hostile;
mod local;
mod rejected;
mod restarts;

const NOW: Timestamp = Timestamp::constant(1_780_000_000, 0);

/// The time before [`NOW`] at which everything in the tests has begun.
const BEFORE: &str = "2026-01-01T00:00:00Z";

fn status(status: &Value) -> PodStatus {
    serde_json::from_value(status.clone()).unwrap()
}

/// Returns a pod with this spec and status.
fn local_pod(spec: &Value, current: &Value) -> Pod {
    let mut pod = pod(spec, &json!({}));
    pod.status = Some(status(current));
    pod
}

/// Returns the status of a pod of this cluster.
fn local(remote: &Value, pod: &Pod) -> Value {
    local_with(remote, &context(pod))
}

static NOTHING: BTreeSet<String> = BTreeSet::new();

fn context(pod: &Pod) -> Context<'_> {
    Context {
        pod,
        map_ip: &Some,
        host_ip: Some(IpAddr::from([10, 244, 0, 5])),
        is_unavailable: false,
        generation: Some(1),
        restarts: 0,
        reported: &NOTHING,
        now: NOW,
    }
}

fn local_with(remote: &Value, context: &Context<'_>) -> Value {
    serde_json::to_value(super::local(&status(remote), context)).unwrap()
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": BEFORE})
}

fn container(name: &str, state: &Value) -> Value {
    json!({
        "image": "nginx",
        "imageID": "sha256:1",
        "name": name,
        "ready": true,
        "restartCount": 0,
        "started": true,
        "state": state,
    })
}

fn running() -> Value {
    json!({"running": {"startedAt": BEFORE}})
}

fn exited(code: i32) -> Value {
    json!({"terminated": {"exitCode": code, "reason": "Completed"}})
}
