use super::{DaemonSetController, PATCH_LEN_MAX, note};
use control_runtime::Key;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};
use std::time::Duration;

fn rome(seed: u64) -> Simulation {
    let mut simulation = Simulation::new(seed)
        .host(|| DaemonSetController)
        .replicas(1);
    simulation.local().put_namespace("logging");
    simulation
}

fn settle(simulation: &mut Simulation) {
    simulation.settle(Duration::from_secs(60)).unwrap();
}

fn daemon_set(name: &str, tolerations: &Value, ready: i32) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "logging"},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "agent"}], "tolerations": tolerations},
            },
        },
        "status": {
            "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberMisscheduled": 0, "numberReady": ready,
        },
    })
}

fn everything() -> Value {
    json!([{"operator": "Exists"}])
}

#[test]
fn a_daemon_set_whose_pods_tolerate_virtual_nodes_is_reported_with_the_patch() {
    let mut rome = rome(1);
    rome.local()
        .put::<DaemonSet>(daemon_set("agent", &everything(), 1));
    rome.local()
        .put::<DaemonSet>(daemon_set("plain", &json!([]), 1));

    settle(&mut rome);

    let events = rome.events(0);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].object.key, Key::new("logging", "agent"));
    assert_eq!(events[0].reason, "MissingNodeAffinity");
    let note = &events[0].note;
    assert!(
        note.contains(r#"[{"key":"liqo.io/type","operator":"DoesNotExist"}]"#),
        "{note}"
    );
    assert!(
        note.contains("liqoctl install --patch-daemonsets"),
        "{note}"
    );
    assert!(note.len() <= 1024);
    assert!(rome.log().is_empty(), "nothing is written");
}

#[test]
fn a_change_of_the_status_is_no_further_event_and_a_patched_one_is_not_reported() {
    let mut rome = rome(2);
    rome.local()
        .put::<DaemonSet>(daemon_set("agent", &everything(), 0));
    settle(&mut rome);
    rome.local()
        .put::<DaemonSet>(daemon_set("agent", &everything(), 1));
    settle(&mut rome);
    assert_eq!(rome.events(0).len(), 1);

    let stored: DaemonSet = serde_json::from_value(daemon_set("agent", &everything(), 1)).unwrap();
    let mut patched = daemon_set("agent", &everything(), 1);
    let patch = control_api::daemon_set::patch(&stored).unwrap();
    patched["spec"]["template"]["spec"]["affinity"] =
        patch["spec"]["template"]["spec"]["affinity"].clone();
    rome.local().put::<DaemonSet>(patched);
    settle(&mut rome);

    assert_eq!(rome.events(0).len(), 1);
}

#[test]
fn a_long_patch_is_left_to_liqoctl() {
    let note = note(&json!({"spec": "a".repeat(PATCH_LEN_MAX)}));

    assert!(note.contains("`liqoctl info` shows"), "{note}");
    assert!(note.len() < 1024 - PATCH_LEN_MAX);
}
