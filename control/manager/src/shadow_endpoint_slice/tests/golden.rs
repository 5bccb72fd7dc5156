//! Objects as upstream writes them, with the same names (v1.2.0).

use super::Side;
use super::side::{REMOTE, settings};
use control_api::ShadowEndpointSlice;
use control_runtime::Key;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

/// Returns the metadata of a slice of `rome`, and that of its EndpointSlice without owner.
fn metadata(name: &str, service: &str, time: &str) -> [Value; 2] {
    let mut labels = json!({
        "endpointslice.kubernetes.io/managed-by": "endpointslice.reflection.liqo.io",
        "kubernetes.io/service-name": service,
        "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/origin": "rome",
    });
    let metadata = |labels: &Value| {
        json!({
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": time},
            "labels": labels,
            "name": name,
            "namespace": REMOTE,
        })
    };
    let of_shadow = metadata(&labels);
    labels["liqo.io/managed"] = json!("true");
    labels["liqo.io/managed-by"] = json!("shadowendpointslice");

    [of_shadow, metadata(&labels)]
}

fn endpoint(address: &str, uid: &str) -> Value {
    json!({
        "addresses": [address],
        "conditions": {"ready": true},
        "nodeName": "rome",
        "targetRef": {"kind": "RemotePod", "name": "local", "namespace": "demo", "uid": uid},
    })
}

/// Reflects a slice, and compares its EndpointSlice.
///
/// Exception: a slice without endpoints has an empty list, which upstream's clients write as `null`.
fn assert_golden(milan: &mut Side, [of_shadow, expected]: [Value; 2], endpoints: [Value; 2]) {
    let [reflected, endpoints] = endpoints;
    let ports = json!([{"name": "http", "port": 80, "protocol": "TCP"}]);
    let name = expected["name"].as_str().unwrap().to_owned();
    let mut template = json!({"addressType": "IPv4", "ports": ports});
    if reflected != json!([]) {
        template["endpoints"] = reflected;
    }
    milan.put::<ShadowEndpointSlice>(json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "ShadowEndpointSlice",
        "metadata": of_shadow,
        "spec": {"template": template},
    }));
    milan.pass();

    let key = Key::new(REMOTE, &*name);
    let shadow = milan.object::<ShadowEndpointSlice>(&key);
    let mut slice = milan.object::<EndpointSlice>(&key);
    let metadata = slice["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion"] {
        assert!(metadata.remove(field).is_some());
    }
    let owners = metadata.remove("ownerReferences");
    assert_eq!(
        owners,
        Some(json!([{
            "apiVersion": "offloading.liqo.io/v1beta1",
            "blockOwnerDeletion": true,
            "controller": true,
            "kind": "ShadowEndpointSlice",
            "name": name,
            "uid": shadow["metadata"]["uid"],
        }]))
    );
    assert_eq!(
        slice,
        json!({
            "addressType": "IPv4",
            "apiVersion": "discovery.k8s.io/v1",
            "endpoints": endpoints,
            "kind": "EndpointSlice",
            "metadata": expected,
            "ports": ports,
        })
    );
    assert_eq!(milan.requests(), 1, "written once");
    milan.assert_settled();
}

#[test]
fn an_endpoint_slice_with_networking_equals_upstreams() {
    let uid = "4294ee9c-cb21-4d69-8311-291db69d9aed";
    assert_golden(
        &mut Side::milan(1),
        metadata("local-9jl4w", "local", "2026-11-21T08:16:07Z"),
        [
            json!([endpoint("10.244.0.16", uid)]),
            json!([endpoint("10.71.0.16", uid)]),
        ],
    );
}

/// Exception: without networking, a TenantPolicy has to allow the addresses.
#[test]
fn an_endpoint_slice_without_networking_equals_upstreams() {
    let mut milan = Side::empty(1, settings());
    milan.put_peer("rome");
    milan.put_remote_namespace(REMOTE, "rome");
    milan.put_foreign_cluster("rome", false, "", None);
    milan.put_policy("rome", &["10.244.0.0/16"]);
    let uid = "51bb98ad-f234-432d-88a5-880305867472";
    let endpoints = json!([endpoint("10.244.1.6", uid)]);
    assert_golden(
        &mut milan,
        metadata("local-dqlcb", "local", "2026-11-21T07:16:26Z"),
        [endpoints.clone(), endpoints],
    );
}

#[test]
fn an_endpoint_slice_without_endpoints_equals_upstreams() {
    assert_golden(
        &mut Side::milan(1),
        metadata("web-c2jd2", "web", "2026-11-21T07:16:27Z"),
        [json!([]), json!([])],
    );
}
