//! The translation of a peer's addresses.

use crate::shadow_endpoint_slice::mapping::{Mapping, NotMapped};
use serde_json::{Value, from_value, json};

/// Returns the Configuration of a peer with two pod CIDRs, one of which is not remapped.
fn configuration() -> Value {
    json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Configuration",
        "metadata": {"name": "rome", "generation": 2},
        "spec": {"remote": {"cidr": {
            "pod": ["10.244.0.0/16", "10.30.0.0/24"],
            "external": ["10.70.0.0/16"],
        }}},
        "status": {
            "conditions": [{
                "lastTransitionTime": "2026-11-21T08:15:18Z",
                "message": "",
                "observedGeneration": 2,
                "reason": "NetworkCIDRsConfigured",
                "status": "True",
                "type": "NetworkCIDRsConfigured",
            }],
            "remote": {"cidr": {
                "pod": ["10.71.0.0/16", "10.30.0.0/24"],
                "external": ["10.68.0.0/16"],
            }},
        },
    })
}

fn mapping(configuration: Value) -> Result<Mapping, NotMapped> {
    Mapping::of(&from_value(configuration).unwrap())
}

#[test]
fn host_bits_are_kept_and_the_network_is_replaced() {
    let mapping = mapping(configuration()).unwrap();
    for (address, all, pods) in [
        ("10.244.0.16", Some("10.71.0.16"), Some("10.71.0.16")),
        (
            "10.244.255.255",
            Some("10.71.255.255"),
            Some("10.71.255.255"),
        ),
        ("10.30.0.7", Some("10.30.0.7"), Some("10.30.0.7")),
        ("10.70.3.4", Some("10.68.3.4"), None),
        ("10.245.0.1", None, None),
        ("10.71.0.16", None, None),
    ] {
        let address = address.parse().unwrap();
        let text = |address: Option<std::net::Ipv4Addr>| address.map(|it| it.to_string());
        assert_eq!(text(mapping.map(address)).as_deref(), all, "{address}");
        assert_eq!(text(mapping.map_pod(address)).as_deref(), pods, "{address}");
    }
}

#[test]
fn cidrs_count_once_they_are_allocated_for_the_current_generation() {
    type Edit = fn(&mut Value);
    let table: [(Edit, NotMapped); 7] = [
        (
            |it| it["metadata"]["generation"] = json!(3),
            NotMapped::Pending,
        ),
        (
            |it| it["status"]["conditions"][0]["status"] = json!("False"),
            NotMapped::Missing,
        ),
        (
            |it| it["status"]["conditions"] = json!([]),
            NotMapped::Missing,
        ),
        (|it| it["status"] = Value::Null, NotMapped::Missing),
        (
            |it| it["status"]["remote"]["cidr"]["pod"] = json!(["10.71.0.0/16"]),
            NotMapped::Missing,
        ),
        (
            |it| it["status"]["remote"]["cidr"]["pod"][1] = json!(""),
            NotMapped::Missing,
        ),
        (
            |it| it["status"]["remote"]["cidr"]["pod"][1] = json!("10.30.0.0/25"),
            NotMapped::Missing,
        ),
    ];
    for (number, (edit, expected)) in table.into_iter().enumerate() {
        let mut configuration = configuration();
        edit(&mut configuration);
        assert_eq!(mapping(configuration), Err(expected), "{number}");
    }
}

#[test]
fn the_address_of_the_consumers_api_server_is_translated_in_host_aliases() {
    let aliases = json!([
        {"ip": "10.70.0.5", "hostnames": ["kubernetes.default", "kubernetes.default.svc"]},
        {"ip": "10.70.0.6", "hostnames": ["printer"]},
        {"ip": "192.0.2.1", "hostnames": ["kubernetes.default"]},
        {"ip": "x", "hostnames": ["kubernetes.default"]},
        {"ip": "10.70.0.7"},
    ]);
    let mapping = mapping(configuration()).unwrap();

    let mapped = mapping.host_aliases(&from_value::<Vec<_>>(aliases.clone()).unwrap());

    let mut expected = aliases;
    expected[0]["ip"] = json!("10.68.0.5");
    assert_eq!(json!(mapped), expected);
}
