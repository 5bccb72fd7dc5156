use crate::side::{Side, settings};
use control_api::{NamespaceMap, ShadowPod};
use control_runtime::{Cluster, Key};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

mod absences;
mod addresses;
mod changes;
mod contests;
mod creator;
mod delayed;
mod events;
mod lost;
mod outages;
mod steps;
mod tokens;
mod unmapped;
mod unscheduled;

/// Returns `rome` with an offloaded namespace, and a pod that the provider has created.
fn rome(seed: u64) -> Side {
    let mut rome = Side::new(seed);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &running("10.244.1.7"));
    rome
}

fn running(address: &str) -> Value {
    json!({
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "192.0.2.7",
        "startTime": "2026-11-21T07:20:00Z",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T07:20:01Z"}],
        "containerStatuses": [{
            "name": "web", "image": "web:1", "imageID": "", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-11-21T07:20:01Z"}},
        }],
    })
}

fn pod_key() -> Key {
    Key::new("shop", "web")
}

#[test]
fn a_pod_runs_at_the_provider_and_its_status_comes_back() {
    let mut rome = rome(1);

    let labels = rome.shadow("web")["metadata"]["labels"].clone();
    assert_eq!(
        labels,
        json!({
            "app": "web",
            "offloading.liqo.io/destination": "milan",
            "offloading.liqo.io/nodename": "milan",
            "offloading.liqo.io/origin": "rome",
        })
    );
    let pod = rome.pod("web");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(
        pod["status"]["podIP"], "10.71.1.7",
        "the address that it has in this cluster"
    );
    assert_eq!(
        pod["status"]["hostIP"], "10.244.0.5",
        "the virtual kubelet's"
    );
    assert_eq!(pod["metadata"]["labels"]["liqo.io/shadowPod"], "true");
    assert_eq!(rome.writes::<ShadowPod>(), 1, "one creation");
    assert_eq!(rome.writes::<Pod>(), 2, "the label, and one status");
    assert!(rome.redundant().is_empty());
    let replanned = rome
        .simulation
        .replan(Duration::from_secs(1))
        .unwrap_or_default();
    let of_pods = replanned
        .iter()
        .filter(|it| it.request.object().is_some_and(|it| it.key == pod_key()));
    assert_eq!(of_pods.count(), 0);
}

/// Withdraws the namespace, as the manager and the provider do.
fn withdraw(rome: &mut Side, phase: Option<&str>) {
    let current = match phase {
        Some(phase) => json!({"shop": {"phase": phase, "remoteNamespace": "shop-rome"}}),
        None => json!({}),
    };
    rome.edit::<NamespaceMap>(&map_key(), |map| {
        map["spec"]["desiredMapping"] = json!({});
        map["status"]["currentMapping"] = current;
    });
}

fn map_key() -> Key {
    Key::new("liqo-tenant-milan", "milan")
}

#[test]
fn a_running_pod_fails_when_its_namespace_is_withdrawn() {
    let mut rome = rome(4);
    withdraw(&mut rome, Some("Terminating"));
    assert_eq!(rome.pod("web")["status"]["phase"], "Failed");
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingAborted");

    // The remote pod still runs.
    assert_eq!(rome.shadow("web"), Value::Null);
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();
    assert!(rome.pod("web").is_object());
    withdraw(&mut rome, None);
    assert_eq!(rome.pod("web"), Value::Null);
}

#[test]
fn the_shadow_pods_of_a_withdrawn_namespace_are_removed_before_the_provider_deletes_it() {
    let mut rome = rome(4);
    rome.put_pod("later");
    withdraw(&mut rome, Some("Accepted"));

    assert_eq!(rome.shadow("web"), Value::Null);
    assert_eq!(rome.shadow("later"), Value::Null);
    let labels = json!({"offloading.liqo.io/nodename": "milan", "offloading.liqo.io/origin": "rome",
        "offloading.liqo.io/destination": "milan"});
    let theirs = json!({"offloading.liqo.io/nodename": "milan-2"});
    for (name, labels) in [("left", labels), ("theirs", theirs)] {
        rome.provider().put::<ShadowPod>(json!({
            "metadata": {"name": name, "namespace": "shop-rome", "labels": labels}, "spec": {},
        }));
    }
    rome.pass();
    assert_eq!(rome.shadow("left"), Value::Null);
    assert!(rome.shadow("theirs").is_object(), "of another virtual node");

    rome.remove_remote("web");
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingAborted");
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();
    assert_eq!(rome.pod("web"), Value::Null, "it has ended at the provider");
    assert!(rome.redundant().is_empty());
}

#[test]
fn a_withdrawn_pod_fails_also_while_the_provider_is_away() {
    let mut rome = rome(4);
    rome.simulation.partition(&Cluster::remote("milan"));
    withdraw(&mut rome, Some("Accepted"));
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingAborted");
    assert!(rome.shadow("web").is_object());

    rome.simulation.heal(&Cluster::remote("milan"));
    rome.simulation.pass(Duration::from_secs(120));
    assert_eq!(rome.shadow("web"), Value::Null);
}

#[test]
fn a_pod_that_failed_by_a_withdrawal_does_not_run_again() {
    let mut rome = rome(4);
    withdraw(&mut rome, Some("Terminating"));
    rome.put_map("Accepted");
    rome.pass();

    assert_eq!(rome.pod("web")["status"]["phase"], "Failed");
    assert_eq!(rome.shadow("web"), Value::Null);
}

#[test]
fn running_pods_stay_while_the_namespace_map_is_missing() {
    let mut rome = rome(4);
    let before = rome.pod("web");
    rome.simulation.local().remove::<NamespaceMap>(&map_key());
    rome.pass();
    assert_eq!(rome.pod("web"), before);

    rome.put_map("Accepted");
    rome.pass();
    assert_eq!(rome.pod("web"), before);
    assert!(rome.shadow("web").is_object());
}

#[test]
fn a_pod_ends_when_it_has_ended_at_the_provider() {
    let mut rome = rome(5);
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();
    assert_eq!(rome.shadow("web"), Value::Null);
    assert!(
        rome.pod("web").is_object(),
        "its containers are still ending"
    );

    rome.remove_remote("web");
    assert_eq!(rome.pod("web"), Value::Null);
}

#[test]
fn a_pod_that_was_deleted_before_it_was_created_at_the_provider_ends() {
    let mut rome = Side::new(6);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();

    assert_eq!(rome.pod("web"), Value::Null);
    assert_eq!(rome.shadow("web"), Value::Null);
}

#[test]
fn shadow_pods_without_a_pod_are_removed_after_a_restart() {
    let mut rome = rome(7);
    for replica in [0, 1] {
        rome.simulation.crash(replica);
    }
    let mut pod = rome.pod("web");
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    rome.put::<Pod>(pod);
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();

    assert_eq!(rome.shadow("web"), Value::Null);
}

#[test]
fn a_shadow_pod_of_another_node_is_never_touched() {
    let mut rome = Side::new(9);
    rome.put_map("Accepted");
    rome.provider().put::<ShadowPod>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
        "metadata": {"name": "web", "namespace": "shop-rome", "labels": {
            "offloading.liqo.io/nodename": "milan", "offloading.liqo.io/origin": "naples",
            "offloading.liqo.io/destination": "milan"}},
        "spec": {},
    }));
    let before = rome.shadow("web");
    rome.put_pod("web");
    rome.pass();
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.pass();

    assert_eq!(rome.shadow("web"), before);
    assert_eq!(rome.pod("web"), Value::Null, "it never ran");
    assert!(
        rome.events()
            .iter()
            .any(|it| it.starts_with("FailedReflection")),
        "{:?}",
        rome.events()
    );
}

#[test]
fn the_status_of_a_remote_pod_of_another_cluster_is_not_reported() {
    let mut rome = Side::new(9);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.provider().put::<Pod>(json!({
        "metadata": {"name": "web", "namespace": "shop-rome", "labels": {
            "offloading.liqo.io/nodename": "milan", "offloading.liqo.io/origin": "naples",
            "offloading.liqo.io/destination": "milan"}},
        "spec": {"containers": []},
        "status": running("10.244.1.7"),
    }));
    rome.pass();

    assert_eq!(rome.pod("web")["status"]["phase"], "Pending");
}

/// It lacks the label by which the virtual kubelet watches its objects.
#[test]
fn a_shadow_pod_of_someone_else_is_reported() {
    let mut rome = Side::new(9);
    rome.put_map("Accepted");
    rome.provider().put::<ShadowPod>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
        "metadata": {"name": "web", "namespace": "shop-rome"},
        "spec": {},
    }));
    rome.put_pod("web");
    rome.simulation.pass(Duration::from_secs(10));

    assert!(
        rome.events()
            .iter()
            .any(|it| it.starts_with("FailedReflection: a ShadowPod of this name exists")),
        "{:?}",
        rome.events()
    );
}

#[test]
fn a_refusal_of_the_provider_is_reported_and_the_creation_repeated() {
    let mut rome = Side::new(9);
    rome.put_map("Accepted");
    rome.provider()
        .refuse_right(Some(("create", "shadowpods")), false);
    rome.put_pod("web");
    rome.simulation.pass(Duration::from_secs(10));
    assert!(
        rome.events()
            .iter()
            .any(|it| it.starts_with("FailedReflection: the provider refuses the ShadowPod")),
        "{:?}",
        rome.events()
    );

    rome.provider().refuse_right(None, false);
    rome.simulation.pass(Duration::from_secs(60));
    assert!(rome.shadow("web").is_object());
}

#[test]
fn a_deleted_shadow_pod_is_created_again() {
    let mut rome = rome(10);
    rome.provider()
        .remove::<ShadowPod>(&Key::new("shop-rome", "web"));
    rome.pass();
    assert_eq!(
        rome.shadow("web"),
        Value::Null,
        "its remote pod is still ending"
    );
    rome.remove_remote("web");

    assert!(rome.shadow("web").is_object());
    rome.put_remote("web", &running("10.244.1.8"));
    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["podIP"], "10.71.1.8");
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1);
}

#[test]
fn a_remote_pod_that_is_gone_after_its_end_ends_the_pod() {
    let mut rome = rome(11);
    let mut shadow = rome.shadow("web");
    shadow["status"] = json!({"phase": "Succeeded"});
    rome.provider().put::<ShadowPod>(shadow);
    rome.remove_remote("web");

    assert_eq!(rome.pod("web")["status"]["phase"], "Succeeded");
    assert_eq!(rome.pod("web")["status"]["reason"], "RemotePodTerminated");
    assert_eq!(rome.writes::<ShadowPod>(), 1, "it is not created again");
}

#[test]
fn addresses_outside_of_the_providers_cidrs_are_not_reported() {
    let mut rome = rome(12);
    rome.put_remote("web", &running("10.96.0.1"));
    assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);

    let mut settings = settings();
    settings.reflects_ips = false;
    let mut rome = Side::with_settings(12, settings);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
    assert_eq!(rome.pod("web")["status"]["phase"], "Running");
}

#[test]
fn a_shadow_pod_stays_as_it_is_while_the_node_is_not_ready() {
    let mut rome = rome(13);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2");
        pod["metadata"]["labels"]["liqo.io/remote-unavailable"] = json!("true");
    });
    let version = rome.shadow("web")["metadata"]["labels"]["version"].clone();
    assert_eq!(version, Value::Null);

    rome.edit::<Pod>(&pod_key(), |pod| {
        let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove("liqo.io/remote-unavailable");
    });
    assert_eq!(rome.shadow("web")["metadata"]["labels"]["version"], "2");
}

#[test]
fn a_deleted_pod_stays_after_a_restart_until_its_remote_pod_is_known() {
    let mut rome = rome(14);
    let provider = Cluster::remote("milan");
    for replica in [0, 1] {
        rome.simulation.crash(replica);
    }
    rome.simulation.partition(&provider);
    rome.simulation.local().remove::<Pod>(&pod_key());
    rome.simulation.pass(Duration::from_secs(60));
    assert!(rome.pod("web").is_object());

    rome.simulation.heal(&provider);
    rome.simulation.pass(Duration::from_secs(90));
    assert_eq!(rome.shadow("web"), Value::Null);
    assert!(rome.pod("web").is_object(), "its containers are ending");
    rome.remove_remote("web");
    assert_eq!(rome.pod("web"), Value::Null);
}

#[test]
fn nothing_changes_while_the_provider_is_away() {
    let mut rome = rome(13);
    let provider = Cluster::remote("milan");
    let before = rome.pod("web");
    rome.simulation.partition(&provider);
    rome.put_pod("late");
    rome.simulation.pass(Duration::from_secs(240));
    assert_eq!(rome.pod("web"), before);
    assert_eq!(rome.shadow("late"), Value::Null);

    rome.simulation.heal(&provider);
    rome.simulation.pass(Duration::from_secs(90));
    assert!(rome.shadow("late").is_object());
}

#[test]
fn pods_are_neither_lost_nor_doubled_by_crashes_and_partitions() {
    for seed in 0..6 {
        let mut rome = Side::new(seed);
        rome.put_map("Accepted");
        for name in ["a", "b", "c", "d"] {
            rome.put_pod(name);
        }
        let provider = Cluster::remote("milan");
        for leader in [1, 0, 1, 0] {
            rome.simulation.pass(Duration::from_millis(3));
            rome.simulation.crash(leader);
            rome.simulation.hand_over(leader);
            rome.simulation.partition(&provider);
            rome.simulation.pass(Duration::from_millis(5));
            rome.simulation.heal(&provider);
        }
        rome.simulation.pass(Duration::from_secs(60));
        for name in ["a", "b", "c", "d"] {
            rome.put_remote(name, &running("10.244.1.7"));
            assert_eq!(
                rome.pod(name)["status"]["phase"],
                "Running",
                "seed {seed}, {name}"
            );
        }
    }
}
