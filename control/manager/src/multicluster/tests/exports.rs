//! Services of this cluster that it exports.

use super::{Side, key};
use control_api::{ExportedService, ServiceExport, ServiceImport};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;

fn exported_to(side: &mut Side, peer: &str) -> serde_json::Value {
    let key = Key::new(format!("liqo-tenant-{peer}"), "web.shop.rome");
    side.object::<ExportedService>(&key)
}

#[test]
fn an_export_reaches_each_peer_once_and_has_an_import_here_until_it_ends() {
    for seed in 0..8 {
        let mut rome = Side::new(seed);
        rome.export();

        let (turin, milan) = (
            exported_to(&mut rome, "turin"),
            exported_to(&mut rome, "milan"),
        );
        assert_eq!(turin["spec"], milan["spec"]);
        let spec = &turin["spec"];
        assert_eq!(spec["type"], "ClusterSetIP");
        assert_eq!(spec["exportedAt"], "2026-11-21T08:00:00Z");
        // The address that is no pod's cannot be reached by peers.
        let endpoints = json!([{"addresses": ["10.244.1.2"], "conditions": {"ready": true}, "hostname": "web-0"}]);
        assert_eq!(spec["endpointSlices"][0]["endpoints"], endpoints);
        let labels = &turin["metadata"]["labels"];
        assert_eq!(labels["liqo.io/originID"], "rome");
        assert_eq!(labels["liqo.io/replication"], "false");
        let labels = &milan["metadata"]["labels"];
        assert_eq!(labels["liqo.io/replication"], "true");
        assert_eq!(labels["liqo.io/remoteID"], "milan");

        let import = rome.import();
        assert_eq!(import["spec"]["ips"], json!(["10.96.0.77"]));
        assert_eq!(import["status"]["clusters"], json!([{"cluster": "rome"}]));
        assert_eq!(
            import["metadata"]["ownerReferences"][0]["kind"],
            "ClusterRole"
        );
        assert_eq!(rome.endpoints(), ["rome 10.244.1.2", "rome 192.0.2.7"]);
        assert_eq!(rome.condition("Valid"), "True Valid");
        assert_eq!(rome.condition("Ready"), "True Exported");
        assert_eq!(rome.condition("Conflict"), "False NoConflicts");
        let events = rome.simulation.events(0).iter();
        let reasons: std::collections::BTreeSet<_> = events.map(|it| it.reason).collect();
        assert_eq!(reasons, ["EndpointsNotExported"].into());
        rome.assert_settled();

        rome.remove::<ServiceExport>(&key("web"));
        assert!(rome.import().is_null());
        assert!(rome.derived().is_empty() && rome.endpoints().is_empty());
        assert!(exported_to(&mut rome, "turin").is_null());
        assert!(exported_to(&mut rome, "milan").is_null());
        rome.assert_settled();
    }
}

#[test]
fn changes_of_the_service_and_its_endpoints_follow() {
    let mut rome = Side::new(1);
    rome.export();
    rome.put_web(|service| {
        service["spec"]["sessionAffinity"] = json!("ClientIP");
        service["spec"]["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10}});
    });
    rome.put_endpoints(json!([{"addresses": ["10.244.1.3"], "conditions": {"ready": false}}]));
    rome.pass();

    let spec = exported_to(&mut rome, "turin")["spec"].clone();
    assert_eq!(spec["sessionAffinity"], "ClientIP");
    assert_eq!(spec["sessionAffinityTimeoutSeconds"], 10);
    assert_eq!(
        spec["endpointSlices"][0]["endpoints"][0]["addresses"],
        json!(["10.244.1.3"])
    );
    assert_eq!(rome.endpoints(), ["rome !10.244.1.3"]);
    let config = json!({"clientIP": {"timeoutSeconds": 10}});
    assert_eq!(rome.import()["spec"]["sessionAffinityConfig"], config);
    assert_eq!(rome.derived()[0]["spec"]["sessionAffinityConfig"], config);

    rome.put_web(|_| {});
    rome.pass();
    assert!(rome.import()["spec"]["sessionAffinityConfig"].is_null());
    assert!(exported_to(&mut rome, "turin")["spec"]["sessionAffinityTimeoutSeconds"].is_null());
    rome.assert_settled();
}

#[test]
fn a_service_that_cannot_be_exported_is_named_in_the_condition() {
    let mut rome = Side::new(2);
    rome.export();
    rome.put_web(|service| service["spec"]["type"] = json!("ExternalName"));
    rome.pass();
    assert_eq!(rome.condition("Valid"), "False InvalidServiceType");
    assert_eq!(rome.condition("Ready"), "False Failed");
    assert!(rome.import().is_null() && exported_to(&mut rome, "turin").is_null());

    rome.remove::<Service>(&key("web"));
    assert_eq!(rome.condition("Valid"), "False NoService");
    rome.put_web(|service| service["spec"]["ipFamilies"] = json!(["IPv6"]));
    rome.pass();
    assert_eq!(rome.condition("Valid"), "False IPFamilyNotSupported");
    rome.put_web(|service| {
        service["spec"]["clusterIP"] = json!("None");
        service["spec"]["ports"] = json!([]);
    });
    rome.pass();
    assert_eq!(rome.condition("Ready"), "True Exported");
    assert_eq!(rome.import()["spec"]["ports"], json!([]));
    assert_eq!(rome.import()["spec"]["type"], "Headless");
    assert!(rome.import()["spec"]["ips"].is_null() && rome.derived().is_empty());
    rome.assert_settled();
}

#[test]
fn a_service_import_of_another_installation_is_not_changed() {
    let mut rome = Side::new(3);
    rome.put::<ServiceImport>(json!({
        "apiVersion": "multicluster.x-k8s.io/v1beta1",
        "kind": "ServiceImport",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"type": "Headless", "ports": []},
    }));
    rome.export();

    assert_eq!(rome.condition("Ready"), "False Failed");
    assert_eq!(rome.import()["spec"]["type"], "Headless");
    rome.remove::<ServiceImport>(&key("web"));
    assert_eq!(rome.condition("Ready"), "True Exported");
    assert_eq!(rome.import()["spec"]["type"], "ClusterSetIP");
    rome.assert_settled();
}

#[test]
fn a_peering_that_ends_and_a_switched_off_feature_leave_nothing() {
    let mut rome = Side::new(4);
    rome.export();
    rome.put_peer("milan", "Unknown", "Established");
    rome.pass();
    assert!(exported_to(&mut rome, "milan").is_null());

    rome.remove::<ClusterRole>(&Key::cluster("liqo-controller-manager-multi-cluster"));
    assert!(rome.import().is_null() && exported_to(&mut rome, "turin").is_null());
    assert!(rome.derived().is_empty() && rome.endpoints().is_empty());
    rome.put_owner();
    rome.pass();
    assert_eq!(rome.import()["spec"]["type"], "ClusterSetIP");

    rome.remove::<Namespace>(&Key::cluster("shop"));
    // The API server empties the namespace itself.
    assert!(exported_to(&mut rome, "turin").is_null());
}

#[test]
fn a_manager_that_restarts_changes_nothing() {
    let mut rome = Side::new(5);
    rome.export();
    let before = rome.simulation.log().len();
    for leader in [1, 0] {
        rome.simulation.crash(0);
        rome.simulation.crash(1);
        rome.simulation.hand_over(leader);
        rome.pass();
    }

    let log = &rome.simulation.log()[before..];
    assert!(log.is_empty(), "{log:?}");
    assert_eq!(rome.endpoints(), ["rome 10.244.1.2", "rome 192.0.2.7"]);
}
