//! Tests of what the gateways' objects say.

use super::upstream::differs;
use super::*;
use crate::kinds::gateway::ServiceType;
use crate::kinds::gateway_server::ServiceEndpoint;
use k8s_openapi::api::core::v1::Service;
use serde_json::{from_value, json};

fn server(status: &Value) -> GatewayServer {
    from_value(json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "GatewayServer",
        "metadata": {"name": "rome"},
        "spec": {"endpoint": {"serviceType": "LoadBalancer"}},
        "status": status,
    }))
    .unwrap()
}

#[test]
fn an_endpoint_needs_address_and_port() {
    let full = json!({"endpoint": {"addresses": ["172.18.2.3"], "port": 31110, "protocol": "UDP"}});
    let expected = Endpoint {
        addresses: vec!["172.18.2.3".into()],
        port: 31110,
        protocol: Protocol::Udp,
    };

    assert_eq!(reported(&server(&full)), Some(expected));
    assert_eq!(reported(&server(&json!({}))), None);
    // Upstream writes this while the pod's node is not ready.
    let empty = json!({"endpoint": {"addresses": [""], "port": 31110}});
    assert_eq!(reported(&server(&empty)), None);
}

#[test]
fn what_the_manager_complains_about_is_told() {
    let object = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "PortTaken", "message": "31110 is in use"},
        {"type": "Other", "status": "True", "reason": "Fine", "message": ""},
    ]}});

    assert_eq!(unmet(&object), ["PortTaken: 31110 is in use"]);
    assert!(unmet(&json!({})).is_empty());
}

#[test]
fn a_load_balancer_that_does_not_come_has_an_alternative() {
    assert!(no_address_hint(&server(&json!({}))).contains("NodePort"));
}

#[test]
fn a_service_differs_only_in_what_is_asked_for() {
    let service: Service = from_value(json!({"spec": {
        "type": "NodePort",
        "ports": [{"port": 51840, "nodePort": 31110, "protocol": "UDP"}],
    }}))
    .unwrap();
    let wanted = |node_port| ServiceEndpoint {
        service_type: ServiceType::NodePort,
        port: 51840,
        node_port,
        load_balancer_ip: None,
    };

    assert!(!differs(&service, &wanted(None)));
    assert!(!differs(&service, &wanted(Some(31110))));
    assert!(differs(&service, &wanted(Some(31111))));
}
