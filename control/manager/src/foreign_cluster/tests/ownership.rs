//! ForeignClusters that others have written: an earlier release, upstream, a user.

use super::*;
use control_runtime::{Action, Request};

/// A ForeignCluster of upstream, with conditions of all modules.
fn stale() -> Value {
    let condition = |type_: &str| {
        json!({"type": type_, "status": "Ready", "reason": "Stale", "message": "stale",
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let module = |types: &[&str]| {
        let conditions: Vec<_> = types.iter().map(|type_| condition(type_)).collect();
        json!({"enabled": true, "conditions": conditions})
    };
    json!({
        "kind": "ForeignCluster",
        "metadata": {
            "name": "milan",
            "finalizers": ["api-server-checker.liqo.io/finalizer"],
            "annotations": {"liqo.io/foreign-cluster-permanently-unreachable": "true"},
        },
        "spec": {"clusterID": "milan"},
        "status": {
            "role": "Provider",
            "apiServerUrl": "https://192.0.2.7:6443",
            "foreignProxyUrl": "http://192.0.2.7:8118",
            "conditions": [condition("APIServerStatus")],
            "tenantNamespace": {"local": "other", "remote": "other"},
            "modules": {
                "networking": module(&["NetworkConfigurationStatus", "NetworkGatewayServerStatus"]),
                "authentication": module(&["AuthTenantStatus", "AuthIdentityControlPlaneStatus"]),
                "offloading": module(&["OffloadingVirtualNodeStatus"]),
            },
        },
    })
}

#[test]
fn a_foreign_cluster_of_others_is_taken_over() {
    let mut rome = Rome::new();
    rome.put(stale());
    rome.put(configuration());
    rome.put(ready_tenant());
    rome.settle();
    let mut fresh = Rome::new();
    fresh.put(configuration());
    fresh.put(ready_tenant());
    fresh.settle();

    let (taken, fresh_lines) = (rome.summary().unwrap(), fresh.lines());
    assert_eq!(rome.lines(), fresh_lines);
    let labels = json!({"liqo.io/remote-cluster-id": "milan"});
    assert_eq!(taken["metadata"]["labels"], labels);
    // A user's `liqoctl force unpeer` sets it.
    assert!(taken["metadata"]["annotations"].is_object());
    let status = &taken["status"];
    assert!(status["apiServerUrl"].is_null() && status["foreignProxyUrl"].is_null());
    assert!(status["conditions"].as_array().is_none_or(Vec::is_empty));
    assert_eq!(status["tenantNamespace"], json!({"local": TENANT}));
}

/// Upstream left it when its manager was uninstalled.
#[test]
fn a_foreign_cluster_of_upstream_can_be_deleted() {
    for is_terminating in [false, true] {
        let mut rome = Rome::new();
        rome.put(stale());
        if is_terminating {
            rome.remove(&stale());
        }
        rome.settle();

        assert_eq!(rome.summary(), None, "terminating: {is_terminating}");
    }
}

#[test]
fn a_finalizer_of_a_user_stays() {
    let mut rome = Rome::new();
    let mut object = stale();
    let finalizers = json!(["example.com/keep", "api-server-checker.liqo.io/finalizer"]);
    object["metadata"]["finalizers"] = finalizers;
    rome.put(object);
    rome.settle();

    let summary = rome.summary().unwrap();
    assert_eq!(
        summary["metadata"]["finalizers"],
        json!(["example.com/keep"])
    );
    assert!(summary["metadata"]["deletionTimestamp"].is_string());
    assert!(rome.replan().is_empty());
}

#[test]
fn an_edited_foreign_cluster_is_corrected() {
    let mut rome = Rome::new();
    rome.put(ready_tenant());
    rome.settle();
    let before = rome.summary().unwrap();
    let patch = json!({
        "metadata": {"labels": {"liqo.io/remote-cluster-id": "turin"}},
        "status": {
            "role": "Provider",
            "apiServerUrl": "https://192.0.2.7:6443",
            "modules": {"authentication": {"conditions": []}, "offloading": {"enabled": true}},
        },
    });
    rome.edit(&before, patch);
    rome.settle();

    let mut after = rome.summary().unwrap();
    after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
    // The condition was missing for a moment.
    let path = "/status/modules/authentication/conditions/0/lastTransitionTime";
    *after.pointer_mut(path).unwrap() = before.pointer(path).unwrap().clone();
    assert_eq!(after, before);
}

#[test]
fn a_transition_time_changes_with_the_status_only() {
    let mut rome = Rome::new();
    rome.put(connection("Connected"));
    rome.put(ready_tenant());
    rome.settle();
    let time = |rome: &mut Rome, module: &str, number: usize| {
        let status = rome.summary().unwrap()["status"].take();
        status["modules"][module]["conditions"][number]["lastTransitionTime"].clone()
    };
    let before = [
        time(&mut rome, "networking", 2),
        time(&mut rome, "authentication", 0),
    ];

    rome.simulation.pass(Duration::from_secs(5));
    rome.put(connection("Error"));
    rome.settle();
    let after = [
        time(&mut rome, "networking", 2),
        time(&mut rome, "authentication", 0),
    ];

    assert_ne!(after[0], before[0]);
    assert_eq!(after[1], before[1]);
}

/// It reports no Secret as missing before it has listed the Secrets.
#[test]
fn a_restarted_manager_writes_nothing() {
    for seed in 0..50 {
        let mut rome = Rome::with(seed, true);
        for object in [
            ready_identity(),
            secret(),
            virtual_node("milan", json!({})),
            kubelet("milan", false),
        ] {
            rome.put(object);
        }
        // The API server of the peer has been probed.
        rome.simulation.pass(Duration::from_secs(10));
        let before = rome.log().len();

        rome.simulation.crash(0);
        rome.simulation.pass(Duration::from_secs(10));

        assert_eq!(
            rome.log().len(),
            before,
            "seed {seed}: {:?}",
            &rome.log()[before..]
        );
    }
}

#[test]
fn a_second_leader_overwrites_no_later_status() {
    let mut rome = Rome::new();
    rome.put(ready_tenant());
    rome.settle();
    for sent in rome.log() {
        let Request::Write(write) = &sent.request else {
            panic!("a read: {sent:?}");
        };
        let is_guarded = write.resource_version.is_some();
        assert_eq!(
            is_guarded,
            !matches!(write.action, Action::Create(_)),
            "{write:?}"
        );
    }
}
