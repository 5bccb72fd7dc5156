//! Conditions that clients of this cluster set, and readiness gates.

use super::{BEFORE, NOW, condition, context, local, local_pod, local_with, status};
use crate::pod::status::observe;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const GATE: &str = "example.com/gate";

fn pod(conditions: &Value) -> Pod {
    let spec = json!({"readinessGates": [{"conditionType": GATE}]});
    local_pod(&spec, &json!({"conditions": conditions}))
}

/// Returns the conditions of a remote pod, with the reason of its kubelet why it is not ready.
fn remote(ready: &str, reason: &str, containers_ready: &str) -> Value {
    let mut ready = condition("Ready", ready);
    ready["reason"] = json!(reason);
    json!({"conditions": [ready, condition("ContainersReady", containers_ready)]})
}

/// Returns the conditions as `type=status`.
fn statuses(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value| {
        format!(
            "{}={}",
            it["type"].as_str().unwrap(),
            it["status"].as_str().unwrap()
        )
    };
    conditions.iter().map(text).collect()
}

#[test]
fn conditions_that_only_this_cluster_sets_stay() {
    let mut target = condition("DisruptionTarget", "True");
    target["reason"] = json!("EvictionByEvictionAPI");
    let own = [
        condition("Initialized", "True"),
        condition("PodResizePending", "True"),
        target.clone(),
    ];
    let pod = local_pod(&json!({}), &json!({"conditions": own}));

    let status = local(&json!({"conditions": [condition("Ready", "True")]}), &pod);

    assert_eq!(
        status["conditions"],
        json!([condition("Ready", "True"), target])
    );
    let status = local(&json!({"phase": "Running"}), &pod);
    assert_eq!(status["conditions"], json!([target]));
}

/// A remote pod was disrupted, and its gate was true. Another one has replaced it.
#[test]
fn a_condition_that_the_provider_has_reported_ends_with_its_remote_pod() {
    let conditions = json!([
        condition("DisruptionTarget", "True"),
        condition(GATE, "True")
    ]);
    let own = pod(&conditions);
    let mut reported = BTreeSet::new();
    observe(&mut reported, &status(&json!({"conditions": conditions})));
    let context = super::Context {
        reported: &reported,
        ..context(&own)
    };

    let next = local_with(&remote("False", "ReadinessGatesNotReady", "True"), &context);

    assert_eq!(statuses(&next), ["Ready=False", "ContainersReady=True"]);
}

#[test]
fn a_condition_of_the_provider_replaces_one_of_its_type() {
    let pod = local_pod(
        &json!({}),
        &json!({"conditions": [condition("DisruptionTarget", "False")]}),
    );
    let conditions = json!([condition("DisruptionTarget", "True")]);

    let status = local(&json!({"conditions": conditions}), &pod);

    assert_eq!(status["conditions"], conditions);
}

#[test]
fn a_provider_does_not_fill_the_status_with_conditions() {
    let mut pod = pod(&json!([]));
    for round in 0..5 {
        let types = (0..32).map(|it| condition(&format!("Type{round}-{it}"), "True"));
        let conditions: Vec<_> = types.collect();
        let status = local(&json!({"conditions": conditions}), &pod);
        let mut status = status["conditions"].as_array().unwrap().clone();
        assert!(status.len() <= 66, "{}", status.len());
        if round == 3 {
            status.extend([
                condition("DisruptionTarget", "True"),
                condition(GATE, "True"),
            ]);
        }
        pod = self::pod(&json!(status));
    }

    let statuses = statuses(&json!(pod.status.unwrap()));
    assert!(statuses.contains(&"DisruptionTarget=True".to_owned()));
    assert!(statuses.contains(&format!("{GATE}=True")));
}

#[test]
fn a_readiness_gate_of_this_cluster_decides_whether_the_pod_is_ready() {
    let missing = "ReadinessGatesNotReady";
    for (remote, gate, expected) in [
        (remote("False", missing, "True"), Some("True"), "True"),
        (remote("False", missing, "True"), Some("False"), "False"),
        (remote("False", missing, "True"), None, "False"),
        (
            remote("False", "ContainersNotReady", "False"),
            Some("True"),
            "False",
        ),
        (remote("False", missing, "False"), Some("True"), "False"),
        // A provider that leaves the gates out.
        (remote("True", "", "True"), Some("True"), "True"),
        (remote("True", "", "True"), Some("False"), "False"),
        (remote("True", "", "True"), None, "False"),
    ] {
        let own: Vec<_> = gate.map(|it| condition(GATE, it)).into_iter().collect();

        let status = local(&remote, &pod(&json!(own)));

        assert_eq!(
            status["conditions"][0]["status"], expected,
            "{remote} {gate:?}"
        );
        let kept = own.first().unwrap_or(&Value::Null);
        assert_eq!(&status["conditions"][2], kept);
    }
}

#[test]
fn a_readiness_gate_of_the_provider_counts() {
    let mut remote = remote("True", "", "True");
    let gate = condition(GATE, "True");
    remote["conditions"]
        .as_array_mut()
        .unwrap()
        .push(gate.clone());

    let status = local(&remote, &pod(&json!([])));

    assert_eq!(
        statuses(&status),
        [
            "Ready=True",
            "ContainersReady=True",
            "example.com/gate=True"
        ]
    );
}

#[test]
fn a_pod_that_its_gates_made_ready_is_written_once() {
    let gates = "ReadinessGatesNotReady";
    let own = pod(&json!([
        condition("Ready", "False"),
        condition(GATE, "True")
    ]));
    let first = local(&remote("False", gates, "True"), &own);
    assert_eq!(
        first["conditions"][0]["lastTransitionTime"],
        NOW.to_string()
    );
    assert_eq!(first["conditions"][0].get("reason"), None);

    let own = pod(&first["conditions"]);
    let later = super::Context {
        now: NOW + std::time::Duration::from_secs(60),
        ..context(&own)
    };
    assert_eq!(local_with(&remote("False", gates, "True"), &later), first);
    assert_eq!(first["conditions"][1]["lastTransitionTime"], BEFORE);
}

#[test]
fn a_pod_that_its_gates_made_ready_is_not_while_its_virtual_node_is_unavailable() {
    let own = pod(&json!([condition(GATE, "True")]));
    let context = super::Context {
        is_unavailable: true,
        ..context(&own)
    };

    let status = local_with(&remote("False", "ReadinessGatesNotReady", "True"), &context);

    assert_eq!(status["conditions"][0]["status"], "False");
    assert_eq!(status["conditions"][0]["reason"], "RemoteUnavailable");
}
