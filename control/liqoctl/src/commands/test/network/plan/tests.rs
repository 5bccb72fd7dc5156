//! Tests of the planned requests.

use super::super::fixture::TestPod;
use super::super::services::reached;
use super::*;
use k8s_openapi::api::core::v1::Service;

fn fixture() -> Fixture {
    let pod = |name: &str, node: &str| TestPod {
        name: name.into(),
        node: node.into(),
        address: [10, 244, 1, 2].into(),
    };
    let node = |name: &str, last, is_control_plane| TestNode {
        name: name.into(),
        address: [172, 18, 1, last].into(),
        is_control_plane,
    };
    Fixture {
        pods: vec![pod("p-a", "cp"), pod("p-b", "worker")],
        on_nodes: vec![pod("n-a", "cp"), pod("n-b", "worker")],
        nodes: vec![node("cp", 2, true), node("worker", 3, false)],
    }
}

#[test]
fn every_pod_sends_a_request_to_every_pod() {
    let servers = [
        ("milan/a".into(), "10.71.0.2".into()),
        ("milan/b".into(), "10.71.1.2".into()),
    ];

    let calls = pods_to_pods(&fixture(), &servers);

    assert_eq!(calls.len(), 4);
    assert_eq!(calls[3].address, "10.71.1.2:8080");
    assert_eq!(calls[3].caller, Caller::Pod("p-b".into(), "worker".into()));
    assert_eq!(nodes_to_pods(&fixture(), &servers).len(), 4);
}

#[test]
fn node_ports_are_checked_on_the_selected_nodes() {
    let options = Options {
        np_ext: true,
        pod_np: true,
        np_nodes: NodePortNodes::Workers,
        ..Options::default()
    };

    let calls = to_service(&fixture(), "NodePort", "31000", &options);

    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call.address == "172.18.1.3:31000"));
    assert_eq!(calls[0].caller, Caller::Here);
}

#[test]
fn a_service_is_reached_by_its_type() {
    let service: Service = serde_json::from_value(serde_json::json!({
        "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 8080, "nodePort": 31000}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "172.18.9.9"}]}},
    }))
    .unwrap();

    assert_eq!(reached(&service, "ClusterIP").unwrap(), "10.96.0.7");
    assert_eq!(reached(&service, "NodePort").unwrap(), "31000");
    assert_eq!(reached(&service, "LoadBalancer").unwrap(), "172.18.9.9");
    assert_eq!(reached(&Service::default(), "ClusterIP"), None);
}
