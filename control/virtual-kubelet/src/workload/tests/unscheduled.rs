//! Pods that the provider does not place, and what the NamespaceOffloading requests.

use super::*;
use control_api::NamespaceOffloading;

fn put_offloading(rome: &mut Side, annotations: Value) {
    rome.put::<NamespaceOffloading>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": "shop", "annotations": annotations},
        "spec": {},
    }));
}

fn owner(is_controller: bool) -> Value {
    json!([{
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": "u",
        "controller": is_controller,
    }])
}

fn unschedulable(reason: &str, message: &str) -> Value {
    json!({
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": reason, "message": message},
        ],
    })
}

/// Returns `rome` with a pod that the provider does not place, and which returns after a minute.
fn rome_with(owners: Value, status: &Value) -> Side {
    let mut rome = Side::new(1);
    rome.put_map("Accepted");
    put_offloading(&mut rome, json!({"liqo.io/return-unschedulable": "1m"}));
    put_owned(&mut rome, owners);
    rome.pass();
    rome.put_remote("web", status);
    rome
}

fn put_owned(rome: &mut Side, owners: Value) {
    rome.put_pod("web");
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["ownerReferences"] = owners
    });
}

fn is_deleted(rome: &mut Side) -> bool {
    let pod = rome.pod("web");
    pod.is_null() || !pod["metadata"]["deletionTimestamp"].is_null()
}

fn notes(rome: &Side, reason: &str) -> Vec<String> {
    let events = rome.events().into_iter();
    events.filter(|it| it.starts_with(reason)).collect()
}

const FULL: &str = "0/3 nodes are available: insufficient cpu";

#[test]
fn a_pod_that_the_provider_does_not_place_is_deleted_after_the_time() {
    let mut rome = rome_with(owner(true), &unschedulable("Unschedulable", FULL));
    rome.simulation.pass(Duration::from_secs(56));
    assert!(!is_deleted(&mut rome));
    assert_eq!(notes(&rome, "ReturnedUnschedulable"), [""; 0]);

    rome.simulation.pass(Duration::from_secs(4));
    assert!(is_deleted(&mut rome));
    let expected = format!(
        "ReturnedUnschedulable: the provider has not placed the pod for 60 s, so it is deleted, as annotation \
         liqo.io/return-unschedulable of the NamespaceOffloading requests, and its controller creates another one. The \
         provider's scheduler: {FULL}"
    );
    assert!(
        notes(&rome, "ReturnedUnschedulable").contains(&expected),
        "{:?}",
        rome.events()
    );
    assert_eq!(rome.shadow("web"), Value::Null, "the provider stops trying");
}

#[test]
fn a_pod_without_controller_stays_and_an_event_says_so() {
    for owners in [Value::Null, json!([]), owner(false)] {
        let mut rome = rome_with(owners, &unschedulable("Unschedulable", FULL));
        rome.simulation.pass(Duration::from_secs(300));

        assert!(!is_deleted(&mut rome));
        assert!(rome.shadow("web").is_object());
        let notes = notes(&rome, "FailedReturn");
        assert!(
            notes.iter().any(|it| it.contains("so it stays")),
            "{notes:?}"
        );
    }
}

#[test]
fn a_pod_that_waits_for_another_reason_stays() {
    let pending = json!({"phase": "Pending"});
    let placed = json!({
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
    });
    for status in [
        pending,
        placed,
        unschedulable("SchedulingGated", "gate"),
        running("10.244.1.7"),
    ] {
        let mut rome = rome_with(owner(true), &status);
        rome.simulation.pass(Duration::from_secs(300));

        assert!(!is_deleted(&mut rome), "{status}");
    }
}

#[test]
fn the_time_begins_again_after_the_pod_was_placed() {
    let waiting = unschedulable("Unschedulable", FULL);
    let mut rome = rome_with(owner(true), &waiting);
    rome.simulation.pass(Duration::from_secs(50));
    rome.put_remote("web", &json!({"phase": "Pending"}));
    rome.put_remote("web", &waiting);
    rome.simulation.pass(Duration::from_secs(50));
    assert!(!is_deleted(&mut rome));

    rome.simulation.pass(Duration::from_secs(12));
    assert!(is_deleted(&mut rome));
}

#[test]
fn without_the_annotation_a_pod_waits_for_ever_and_a_later_one_counts_from_then() {
    let mut rome = Side::new(3);
    rome.put_map("Accepted");
    put_owned(&mut rome, owner(true));
    rome.pass();
    rome.put_remote("web", &unschedulable("Unschedulable", FULL));
    rome.simulation.pass(Duration::from_secs(3600));
    assert!(!is_deleted(&mut rome));

    put_offloading(&mut rome, json!({"liqo.io/return-unschedulable": "30s"}));
    rome.simulation.pass(Duration::from_secs(28));
    assert!(!is_deleted(&mut rome));
    rome.simulation.pass(Duration::from_secs(4));
    assert!(is_deleted(&mut rome));
}

#[test]
fn a_pod_stays_while_its_node_is_not_ready() {
    let mut rome = rome_with(owner(true), &unschedulable("Unschedulable", FULL));
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["liqo.io/remote-unavailable"] = json!("true");
    });
    rome.simulation.pass(Duration::from_secs(300));

    assert!(!is_deleted(&mut rome));
}

#[test]
fn absurd_times_are_reported_or_bounded() {
    for value in ["soon", "-1m", "", "x".repeat(5000).as_str()] {
        let mut rome = rome_with(owner(true), &unschedulable("Unschedulable", FULL));
        put_offloading(&mut rome, json!({"liqo.io/return-unschedulable": value}));
        rome.simulation.pass(Duration::from_secs(300));

        assert!(!is_deleted(&mut rome), "{value}");
        let notes = notes(&rome, "FailedReturn");
        assert!(
            notes.iter().any(|it| it.contains("is no duration")),
            "{notes:?}"
        );
        assert!(notes.iter().all(|it| it.len() < 300), "{notes:?}");
    }
    let mut rome = rome_with(
        owner(true),
        &unschedulable("Unschedulable", &"x".repeat(5000)),
    );
    put_offloading(&mut rome, json!({"liqo.io/return-unschedulable": "0s"}));
    rome.simulation.pass(Duration::from_secs(7));
    assert!(!is_deleted(&mut rome), "10 s at least");
    rome.simulation.pass(Duration::from_secs(5));
    assert!(is_deleted(&mut rome));
    assert!(rome.events().iter().all(|it| it.len() < 1024));
    let never = json!({"liqo.io/return-unschedulable": "2562047h47m16s"});
    let mut rome = rome_with(owner(true), &unschedulable("Unschedulable", FULL));
    put_offloading(&mut rome, never);
    rome.simulation.pass(Duration::from_secs(300));
    assert!(!is_deleted(&mut rome));
}

/// Returns the tolerations of the ShadowPod of a pod with those that admission has given it for `liqo.io/repatriation`.
fn remote_tolerations(annotations: Value, seconds: Option<i64>) -> Value {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let mut rome = Side::new(4);
    rome.put_map("Accepted");
    put_offloading(&mut rome, annotations);
    let mut tolerations = json!([
        toleration("node.kubernetes.io/not-ready"),
        toleration("node.kubernetes.io/unreachable"),
        {"key": "own", "operator": "Exists"},
    ]);
    if seconds.is_none() {
        for toleration in tolerations.as_array_mut().unwrap() {
            toleration
                .as_object_mut()
                .unwrap()
                .remove("tolerationSeconds");
        }
    }
    rome.put::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "nodeName": "milan",
            "containers": [{"name": "web", "image": "web:1"}],
            "tolerations": tolerations,
        },
        "status": {"phase": "Pending"},
    }));
    rome.pass();
    let tolerations = rome.shadow("web")["spec"]["pod"]["tolerations"].clone();
    let keys = tolerations.as_array().unwrap().iter();
    keys.map(|it| it["key"].clone()).collect()
}

#[test]
fn tolerations_of_repatriation_do_not_apply_at_the_provider() {
    let repatriation = |value: &str| json!({"liqo.io/repatriation": value});
    let all = json!([
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "own"
    ]);

    assert_eq!(
        remote_tolerations(repatriation("10m"), Some(600)),
        json!(["own"])
    );
    assert_eq!(
        remote_tolerations(repatriation("9.5s"), Some(10)),
        json!(["own"])
    );
    assert_eq!(
        remote_tolerations(repatriation(" never "), None),
        json!(["own"])
    );
    assert_eq!(
        remote_tolerations(repatriation("10m"), Some(300)),
        all,
        "the user's"
    );
    assert_eq!(remote_tolerations(repatriation("soon"), Some(300)), all);
    assert_eq!(remote_tolerations(json!({}), Some(300)), all);
}

#[test]
fn a_pod_waits_half_a_minute_for_a_namespace_offloading_that_cannot_be_read() {
    let mut rome = Side::new(5);
    rome.pass();
    rome.simulation.local().refuse(true);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.simulation.pass(Duration::from_secs(25));
    assert_eq!(rome.shadow("web"), Value::Null);

    rome.simulation.pass(Duration::from_secs(10));
    assert!(rome.shadow("web").is_object());
}
