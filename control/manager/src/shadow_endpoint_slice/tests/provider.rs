//! The EndpointSlices of a consumer at its provider.

use super::side::REMOTE;
use super::{Side, endpoint, milan, web};
use control_api::{Configuration, ForeignCluster, ShadowEndpointSlice};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn endpoints_are_ready_while_the_peer_is_reached() {
    for (is_networked, connection, api_server, is_ready) in [
        (true, "Established", None, true),
        (true, "Established", Some("Established"), true),
        (true, "Established", Some("None"), true),
        (true, "Established", Some("Error"), false),
        // The path of one node has a fault.
        (true, "SomeNotReady", None, true),
        (true, "Pending", None, false),
        (true, "Error", Some("Established"), false),
        (true, "NotReady", None, false),
        (false, "", None, true),
        (false, "", Some("Established"), true),
        (false, "", Some("Error"), false),
    ] {
        let mut milan = Side::milan(1);
        milan.put_policy("rome", &["192.0.2.0/24"]);
        milan.put_foreign_cluster("rome", is_networked, connection, api_server);
        milan.reflect(json!([
            {"addresses": ["192.0.2.1"], "conditions": {"ready": true}},
            {"addresses": ["192.0.2.2"]},
            {"addresses": ["192.0.2.3"], "conditions": {"ready": false}},
        ]));

        let mark = if is_ready { "" } else { "!" };
        let expected = [1, 2].map(|host| format!("{mark}192.0.2.{host}"));
        let state = format!("{is_networked} {connection} {api_server:?}");
        assert_eq!(milan.endpoints()[..2], expected, "{state}");
        assert_eq!(milan.endpoints()[2], "!192.0.2.3", "{state}");
    }
}

#[test]
fn endpoints_stay_ready_for_a_grace_period_while_only_the_api_server_is_away() {
    let mut milan = milan(1);
    let outage = |milan: &mut Side, connection| {
        let since = milan.simulation.time().to_string();
        milan.put_foreign_cluster("rome", true, connection, Some("Error"));
        milan.edit::<ForeignCluster>(&Key::cluster("rome"), |it| {
            it["status"]["conditions"][0]["lastTransitionTime"] = json!(since);
        });
        milan.pass();
    };
    outage(&mut milan, "Established");
    milan.simulation.pass(Duration::from_secs(290));
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    milan.simulation.pass(Duration::from_secs(20));
    assert_eq!(milan.endpoints(), ["!10.71.0.1"]);

    milan.put_foreign_cluster("rome", true, "Established", Some("Established"));
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    outage(&mut milan, "Error");
    assert_eq!(milan.endpoints(), ["!10.71.0.1"]);
}

#[test]
fn endpoints_that_are_not_reached_do_not_serve() {
    let mut milan = Side::milan(1);
    let conditions = |milan: &mut Side| {
        let endpoints = milan.slice("web")["endpoints"].clone();
        let endpoints = endpoints.as_array().unwrap().iter();
        Vec::from_iter(endpoints.map(|it| it["conditions"].clone()))
    };
    let of = |ready: bool, serving: bool, terminating: bool| json!({"ready": ready, "serving": serving, "terminating": terminating});
    milan.reflect(json!([
        {"addresses": ["10.244.0.1"], "conditions": of(true, true, false)},
        {"addresses": ["10.244.0.2"], "conditions": of(false, true, true)},
        {"addresses": ["10.244.0.3"], "conditions": of(false, false, true)},
        {"addresses": ["10.244.0.4"], "conditions": {"ready": false, "terminating": true}},
        {"addresses": ["10.244.0.5"], "conditions": {"ready": true}},
    ]));
    let expected = [
        of(true, true, false),
        of(false, true, true),
        of(false, false, true),
        of(false, false, true),
        json!({"ready": true}),
    ];
    assert_eq!(conditions(&mut milan), expected);

    milan.put_foreign_cluster("rome", true, "Error", None);
    milan.pass();
    let expected = [
        of(false, false, false),
        of(false, false, true),
        of(false, false, true),
        of(false, false, true),
        json!({"ready": false}),
    ];
    assert_eq!(conditions(&mut milan), expected);
    milan.assert_settled();
}

#[test]
fn each_change_is_written_once() {
    let mut milan = milan(1);
    assert_eq!(milan.requests(), 1);

    milan.put_foreign_cluster("rome", true, "Error", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["!10.71.0.1"]);
    assert_eq!(milan.requests(), 2);

    milan.edit_shadow(|shadow| {
        shadow["metadata"]["labels"]["team"] = json!("shop");
        shadow["metadata"]["annotations"] = json!({"note": "x"});
        shadow["spec"]["template"]["endpoints"] =
            json!([endpoint("10.244.0.1"), endpoint("10.244.0.2")]);
        shadow["spec"]["template"]["ports"] = json!([{"port": 8080}]);
    });
    assert_eq!(milan.requests(), 3);
    let slice = milan.slice("web");
    assert_eq!(slice["metadata"]["labels"]["team"], "shop");
    assert_eq!(slice["metadata"]["annotations"], json!({"note": "x"}));
    assert_eq!(milan.endpoints(), ["!10.71.0.1", "!10.71.0.2"]);
    let port = json!([{"name": "", "port": 8080, "protocol": "TCP"}]);
    assert_eq!(slice["ports"], port);

    milan.edit_shadow(|shadow| {
        let metadata = shadow["metadata"].as_object_mut().unwrap();
        metadata.remove("annotations");
        metadata["labels"].as_object_mut().unwrap().remove("team");
    });
    assert_eq!(milan.requests(), 4);
    let slice = milan.slice("web");
    assert_eq!(slice["metadata"]["labels"]["team"], Value::Null);
    assert_eq!(slice["metadata"]["annotations"]["note"], Value::Null);
    milan.assert_settled();
}

/// `kubectl apply` has written the slice. The cache keeps EndpointSlices without its annotation.
#[test]
fn the_annotation_of_kubectl_is_not_copied() {
    let mut milan = milan(1);
    milan.edit_shadow(|shadow| {
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        shadow["metadata"]["annotations"] = json!({key: "{}"});
    });

    assert_eq!(milan.requests(), 1);
    milan.assert_settled();
}

#[test]
fn a_missing_foreign_cluster_blocks_the_creation() {
    let mut milan = Side::milan(1);
    milan.remove::<ForeignCluster>(&Key::cluster("rome"));
    milan.reflect(json!([endpoint("10.244.0.1")]));
    assert!(milan.slice("web").is_null());
    assert!(milan.has_event("ForeignClusterMissing", "ForeignCluster rome"));

    milan.put_foreign_cluster("rome", true, "Established", None);
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);

    milan.remove::<ForeignCluster>(&Key::cluster("rome"));
    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    milan.assert_settled();
}

#[test]
fn addresses_wait_for_the_configuration_and_end_with_it() {
    let configuration = Key::new("liqo-tenant-rome", "rome");
    let mut milan = Side::milan(1);
    milan.remove::<Configuration>(&configuration);
    milan.reflect(json!([endpoint("10.244.0.1")]));
    assert!(milan.slice("web").is_null());
    assert!(milan.has_event("ConfigurationMissing", "waits"));

    milan.put_configuration("rome", "10.244.0.0/16", "10.73.0.0/16");
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.73.0.1"]);
    // Its CIDRs are being allocated.
    milan.edit::<Configuration>(&configuration, |it| it["metadata"]["generation"] = json!(3));
    assert_eq!(milan.requests(), 1);
    milan.put_configuration("rome", "10.244.0.0/16", "10.74.0.0/16");
    milan.pass();
    assert_eq!(milan.endpoints(), ["10.74.0.1"]);

    // Another peer may get the CIDR.
    milan.remove::<Configuration>(&configuration);
    assert_eq!(milan.endpoints(), [""; 0]);
    assert!(milan.has_event("PartsLeftOut", "CIDRs are not allocated"));
    milan.assert_settled();
}

#[test]
fn a_configuration_outside_of_the_tenant_namespace_has_no_effect() {
    let mut milan = Side::milan(1);
    let configuration = milan.object::<Configuration>(&Key::new("liqo-tenant-rome", "rome"));
    milan.remove::<Configuration>(&Key::new("liqo-tenant-rome", "rome"));
    milan.put_namespace("developers", &json!({}), &json!({}));
    let mut forged = configuration;
    forged["metadata"]["namespace"] = json!("developers");
    milan.put::<Configuration>(forged);
    milan.reflect(json!([endpoint("10.244.0.1")]));

    assert!(milan.slice("web").is_null());
}

#[test]
fn an_endpoint_slice_of_another_owner_is_never_touched() {
    for labels in [
        json!({}),
        json!({"liqo.io/managed-by": "shadowendpointslice"}),
    ] {
        let mut milan = Side::milan(1);
        milan.put::<EndpointSlice>(json!({
            "metadata": {"name": "web", "namespace": REMOTE, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.244.9.9"]}],
        }));
        let before = milan.slice("web");
        milan.reflect(json!([endpoint("10.244.0.1")]));
        milan.edit_shadow(|shadow| shadow["metadata"]["labels"]["team"] = json!("x"));
        milan.remove::<ShadowEndpointSlice>(&web());
        milan.reflect(json!([endpoint("10.244.0.1")]));

        assert_eq!(milan.slice("web"), before, "{labels}");
        assert!(milan.has_event("NameTaken", "demo-rome/web"), "{labels}");
        milan.remove::<EndpointSlice>(&web());
        milan.simulation.pass(Duration::from_secs(60));
        assert_eq!(milan.endpoints(), ["10.71.0.1"], "{labels}");
    }
}

#[test]
fn changes_by_others_are_corrected() {
    type Edit = fn(&mut Value);
    let edits: [Edit; 5] = [
        |it| it["endpoints"] = json!([{"addresses": ["10.96.0.1"]}]),
        |it| it["ports"] = json!([]),
        |it| it["metadata"]["labels"] = json!({}),
        |it| it["metadata"]["labels"]["kubernetes.io/service-name"] = json!("other"),
        |it| it["metadata"]["annotations"] = json!({"x": "y"}),
    ];
    for (number, edit) in edits.into_iter().enumerate() {
        let mut milan = milan(1);
        let before = milan.slice("web");
        milan.edit::<EndpointSlice>(&web(), edit);

        let mut after = milan.slice("web");
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
        assert_eq!(after, before, "{number}");
        milan.assert_settled();
    }
}

#[test]
fn a_deleted_endpoint_slice_is_created_again() {
    let mut milan = milan(1);
    milan.remove::<EndpointSlice>(&web());

    assert_eq!(milan.endpoints(), ["10.71.0.1"]);
}

#[test]
fn the_garbage_collector_deletes_the_endpoint_slice() {
    let mut milan = milan(1);
    let uid = milan.object::<ShadowEndpointSlice>(&web())["metadata"]["uid"].clone();
    milan.remove::<ShadowEndpointSlice>(&web());
    assert_eq!(milan.requests(), 1);

    milan.reflect(json!([endpoint("10.244.0.1")]));
    let owners = milan.slice("web")["metadata"]["ownerReferences"].clone();
    let owner = milan.object::<ShadowEndpointSlice>(&web())["metadata"]["uid"].clone();
    assert_eq!(owners.as_array().unwrap().len(), 1);
    assert_eq!(owners[0]["uid"], owner);
    assert_ne!(owner, uid);
    milan.assert_settled();
}

#[test]
fn a_finalizer_of_the_consumer_keeps_no_endpoints() {
    let mut milan = milan(1);
    milan.edit_shadow(|shadow| shadow["metadata"]["finalizers"] = json!(["rome/x"]));
    milan.remove::<ShadowEndpointSlice>(&web());

    assert!(milan.object::<ShadowEndpointSlice>(&web()).is_object());
    assert!(milan.slice("web").is_null());
    milan.assert_settled();
}

#[test]
fn only_slices_with_the_consumers_origin_have_an_effect() {
    let mut milan = milan(1);
    for origin in [Some("naples"), Some(""), None] {
        milan.edit_shadow(|shadow| {
            let labels = shadow["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove("offloading.liqo.io/origin");
            let origin = origin.map(|it| ("offloading.liqo.io/origin".to_owned(), json!(it)));
            labels.extend(origin);
        });
        assert!(milan.slice("web").is_null());
        assert!(milan.has_event("OtherOrigin", "consumer rome"));
        milan.edit_shadow(|shadow| {
            shadow["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("rome");
        });
        assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    }
}

#[test]
fn only_namespaces_of_consumers_have_endpoint_slices() {
    let map = "liqo.io/managed-by-namespace-map";
    for (labels, annotations) in [
        (json!({}), json!({})),
        (json!({"liqo.io/remote-cluster-id": "rome"}), json!({})),
        (json!({}), json!({map: "liqo-tenant-rome/milan"})),
        (
            json!({"liqo.io/remote-cluster-id": "rome"}),
            json!({map: "developers/milan"}),
        ),
        (
            json!({"liqo.io/remote-cluster-id": "rome"}),
            json!({map: "liqo-tenant-naples/milan"}),
        ),
    ] {
        let mut milan = Side::milan(1);
        milan.put_peer("naples");
        milan.put_namespace("developers", &json!({}), &json!({}));
        milan.put_namespace(REMOTE, &labels, &annotations);
        milan.reflect(json!([endpoint("10.244.0.1")]));
        assert!(milan.slice("web").is_null(), "{labels} {annotations}");
        assert!(milan.has_event("NotANamespaceOfAConsumer", REMOTE));

        milan.put_remote_namespace(REMOTE, "rome");
        milan.pass();
        assert_eq!(milan.endpoints(), ["10.71.0.1"]);
    }
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut milan = Side::milan(1);
    milan.edit::<Namespace>(&Key::cluster(REMOTE), |it| {
        it["metadata"]["finalizers"] = json!(["kubernetes"]);
    });
    milan.remove::<Namespace>(&Key::cluster(REMOTE));
    milan.reflect(json!([endpoint("10.244.0.1")]));

    assert_eq!(milan.requests(), 0);
}

#[test]
fn after_any_faults_the_endpoint_slices_are_complete() {
    for seed in 0..25 {
        let mut milan = Side::milan(seed);
        for name in ["web", "a", "b", "c"] {
            milan.put_shadow(name, json!([endpoint("10.244.0.1"), endpoint("8.8.8.8")]));
        }
        milan.pass_with_faults();
        milan.put_configuration("rome", "10.244.0.0/16", "10.73.0.0/16");
        milan.put_foreign_cluster("rome", true, "Error", None);
        milan.pass_with_faults();

        assert_eq!(milan.endpoints(), ["!10.73.0.1"], "{seed}");
        let expected = milan.slice("web")["endpoints"].clone();
        for name in ["a", "b", "c"] {
            assert_eq!(milan.slice(name)["endpoints"], expected, "{seed} {name}");
        }
        milan.assert_settled();
    }
}
