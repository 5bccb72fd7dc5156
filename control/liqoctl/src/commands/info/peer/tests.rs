//! Compares the report of a peer with upstream's output.

use super::*;

fn module(status: &'static str) -> Module {
    Module {
        status,
        alerts: Vec::new(),
    }
}

fn milan() -> Report {
    Report {
        id: "milan".into(),
        role: "Provider".into(),
        api_server: "https://172.18.2.2:6443".into(),
        networking: module("Healthy"),
        authentication: module("Disabled"),
        offloading: module("Disabled"),
        remote: Cidrs::default(),
        remapped: Cidrs::default(),
        gateway: None,
        slices: Vec::new(),
        nodes: Vec::new(),
    }
}

/// A report with the network of upstream's laboratory.
fn connected() -> Report {
    let configuration: Configuration = serde_json::from_value(json!({
        "apiVersion": "networking.liqo.io/v1beta1", "kind": "Configuration",
        "metadata": {"name": "milan"},
        "spec": {"remote": {"cidr": {"external": ["10.70.0.0/16"], "pod": ["10.244.0.0/16"]}}},
        "status": {"remote": {"cidr": {"external": ["10.68.0.0/16"], "pod": ["10.71.0.0/16"]}}},
    }))
    .unwrap();
    let client: GatewayClient = serde_json::from_value(json!({
        "apiVersion": "networking.liqo.io/v1beta1", "kind": "GatewayClient",
        "metadata": {"name": "milan"},
        "spec": {"endpoint": {"addresses": ["172.18.2.3"], "port": 31110, "protocol": "UDP"}},
    }))
    .unwrap();
    let mut report = milan();
    report.network(Some(&configuration), Some(&client), None);
    report
}

#[test]
fn the_network_box_is_upstreams() {
    let expected = "\
┌─ Peer cluster info ──────────────────────────────────────────────────────────────┐
|  Cluster ID: milan                                                               |
|  Role:       Provider                                                            |
└──────────────────────────────────────────────────────────────────────────────────┘
┌─ Network ────────────────────────────────────────────────────────────────────────┐
|  Status: Healthy                                                                 |
|  CIDR                                                                            |
|      Remote                                                                      |
|          Pod CIDR:      10.244.0.0/16 → Remapped to 10.71.0.0/16                 |
|          External CIDR: 10.70.0.0/16 → Remapped to 10.68.0.0/16                  |
|  Gateway                                                                         |
|      Role:    Server                                                             |
|      Address: 172.18.2.3                                                         |
|      Port:    31110                                                              |
└──────────────────────────────────────────────────────────────────────────────────┘
";

    assert!(
        connected().boxes().starts_with(expected),
        "{}",
        connected().boxes()
    );
}

#[test]
fn the_values_are_upstreams() {
    let value = connected().value();

    let expected = json!({
        "status": "Healthy",
        "CIDRs": {
            "remapped": {"external": ["10.68.0.0/16"], "pod": ["10.71.0.0/16"]},
            "remote": {"external": ["10.70.0.0/16"], "pod": ["10.244.0.0/16"]},
        },
        "gateway": {"address": ["172.18.2.3"], "port": 31110, "role": "Server"},
    });
    assert_eq!(value["network"], expected);
    assert_eq!(
        value["info"],
        json!({"clusterID": "milan", "role": "Provider"})
    );
}

#[test]
fn a_disabled_network_is_upstreams() {
    let mut report = milan();
    report.networking = module("Disabled");

    let expected = json!({
        "status": "Disabled",
        "CIDRs": {"remote": {}},
        "gateway": {"address": null, "port": 0, "role": ""},
    });
    assert_eq!(report.value()["network"], expected);
    assert!(report.boxes().contains("|  Status: Disabled"));
}

#[test]
fn an_alert_names_the_hop() {
    let mut report = connected();
    report.networking = Module {
        status: "Unhealthy",
        alerts: vec!["the overlay ends at node rome-worker".into()],
    };

    assert!(
        report
            .boxes()
            .contains("|      the overlay ends at node rome-worker")
    );
    assert_eq!(
        report.value()["network"]["alerts"][0],
        "the overlay ends at node rome-worker"
    );
}

#[test]
fn a_cidr_without_mapping_is_marked() {
    assert_eq!(
        shown("10.0.0.0/16", Some(&"10.0.0.0/16".to_owned())),
        "10.0.0.0/16"
    );
    assert_eq!(shown("10.0.0.0/16", None), "10.0.0.0/16 → not mapped yet");
}
