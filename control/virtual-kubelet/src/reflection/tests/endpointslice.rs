use super::peering;
use crate::reflection::endpointslice::{Endpoints, Location, remote};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Returns the ShadowEndpointSlice of endpoints, with the virtual nodes `milan` and `turin` and the node `rome-1`.
fn reflected(endpoints: Value, is_direct: bool) -> Value {
    let slice = json!({
        "metadata": {"name": "a", "annotations": {"liqo.io/direct-connections-data": "forged"}},
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [],
    });
    let locate = |name: &str| match name {
        "milan" => Location::Remote("milan"),
        "turin" => Location::Remote("turin"),
        "naples" => Location::Remote("naples"),
        "rome-1" => Location::Local,
        _ => Location::Unknown,
    };
    let translate = |address: &str| match address {
        "10.71.0.5" => Some("10.70.0.5".to_owned()),
        "192.0.2.7" => Some("10.244.0.6".to_owned()),
        _ => None,
    };
    // Pods of naples have the addresses of this cluster's pods.
    let own_address = |node: &str, address: Ipv4Addr| match (node, address.octets()) {
        ("naples", [10, 71, c, d]) => Some(Ipv4Addr::new(10, 244, c, d)),
        ("naples", _) => None,
        _ => Some(address),
    };
    let context = Endpoints {
        pod_cidrs: &["10.244.0.0/16".parse().unwrap()],
        locate: &locate,
        own_address: &own_address,
        translate: &translate,
        is_direct,
    };
    json!(remote(
        &serde_json::from_value(slice).unwrap(),
        &peering(),
        &context
    ))
}

fn addresses(object: &Value) -> Vec<&str> {
    let endpoints = object["spec"]["template"]["endpoints"].as_array();
    let endpoints = endpoints.map(Vec::as_slice).unwrap_or_default();
    endpoints
        .iter()
        .map(|it| it["addresses"][0].as_str().unwrap())
        .collect()
}

fn endpoint(address: &str, node: Option<&str>) -> Value {
    let target = json!({"kind": "Pod", "name": "p", "namespace": "a"});
    json!({"addresses": [address], "nodeName": node, "targetRef": target})
}

#[test]
fn endpoints_of_the_provider_and_of_unknown_nodes_are_left_out() {
    let object = reflected(
        json!([
            endpoint("10.244.0.1", Some("rome-1")),
            endpoint("10.244.0.2", Some("milan")),
            endpoint("10.244.0.3", Some("gone")),
            endpoint("10.244.0.4", None),
        ]),
        false,
    );

    assert_eq!(addresses(&object), ["10.244.0.1", "10.244.0.4"]);
}

#[test]
fn an_address_outside_of_the_pod_cidrs_becomes_that_of_its_ip_object() {
    let object = reflected(
        json!([
            endpoint("10.71.0.5", Some("turin")),
            endpoint("10.71.0.6", Some("turin")),
            endpoint("fd00::1", None),
        ]),
        false,
    );

    assert_eq!(addresses(&object), ["10.70.0.5"]);
}

#[test]
fn an_endpoint_has_the_fields_that_concern_the_provider() {
    let object = reflected(
        json!([{
            "addresses": ["10.244.0.1"],
            "conditions": {"ready": false, "serving": true, "terminating": true},
            "hints": {"forZones": [{"name": "z"}]},
            "hostname": "h",
            "nodeName": "rome-1",
            "targetRef": {"kind": "Pod", "name": "p", "namespace": "a", "uid": "u"},
            "zone": "z",
        }]),
        false,
    );

    assert_eq!(
        object["spec"]["template"]["endpoints"][0],
        json!({
            "addresses": ["10.244.0.1"],
            "conditions": {"ready": false, "serving": true, "terminating": true},
            "hints": {"forZones": [{"name": "z"}]},
            "hostname": "h",
            "nodeName": "rome",
            "targetRef": {"kind": "RemotePod", "name": "p", "namespace": "a", "uid": "u"},
            "zone": "z",
        })
    );
}

#[test]
fn direct_connections_keep_the_addresses_of_other_providers_and_name_their_clusters() {
    let mut external = endpoint("10.71.0.5", Some("turin"));
    external["targetRef"] = Value::Null;
    let endpoints = json!([
        endpoint("10.244.0.1", Some("rome-1")),
        endpoint("10.71.0.7", Some("turin")),
        endpoint("10.244.0.2", Some("milan")),
        external,
    ]);

    let object = reflected(endpoints.clone(), true);
    assert_eq!(addresses(&object), ["10.244.0.1", "10.71.0.7", "10.70.0.5"]);
    assert_eq!(
        object["metadata"]["annotations"]["liqo.io/direct-connections-data"],
        r#"{"clusterAddresses":{"turin":["10.71.0.7"]}}"#
    );

    let object = reflected(endpoints, false);
    assert_eq!(addresses(&object), ["10.244.0.1", "10.70.0.5"]);
    assert_eq!(object["metadata"]["annotations"], Value::Null);
}

#[test]
fn addresses_that_exceed_the_annotation_are_translated_instead() {
    let many = (0..80_u32).flat_map(|a| (0..256_u32).map(move |b| format!("10.71.{a}.{b}")));
    let endpoints: Vec<_> = many.map(|it| endpoint(&it, Some("turin"))).collect();
    assert!(endpoints.len() * 17 > 256 * 1024);

    let object = reflected(endpoints.into(), true);

    assert_eq!(addresses(&object), ["10.70.0.5"]);
    assert_eq!(object["metadata"]["annotations"], Value::Null);
}

#[test]
fn direct_connections_name_the_addresses_of_the_provider_that_has_them() {
    let object = reflected(
        json!([
            endpoint("10.244.0.5", Some("rome-1")),
            endpoint("10.71.0.4", Some("naples")),
            // A pod of this cluster has its address in naples.
            endpoint("10.71.0.5", Some("naples")),
            endpoint("10.71.0.7", Some("naples")),
            // The translated address of the host is that of this pod in naples.
            endpoint("192.0.2.7", None),
            endpoint("10.71.0.6", Some("naples")),
            // Naples does not have it.
            endpoint("10.75.0.1", Some("naples")),
        ]),
        true,
    );

    assert_eq!(
        addresses(&object),
        [
            "10.244.0.5",
            "10.244.0.4",
            "10.70.0.5",
            "10.244.0.7",
            "10.244.0.6"
        ]
    );
    let data = &object["metadata"]["annotations"]["liqo.io/direct-connections-data"];
    let data: Value = serde_json::from_str(data.as_str().unwrap()).unwrap();
    let expected = json!({"clusterAddresses": {"naples": ["10.244.0.4", "10.244.0.7"]}});
    assert_eq!(data, expected);
}
