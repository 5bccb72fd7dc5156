//! Compares the report of an installation with upstream's output.

use super::*;

fn foreign(id: &str, networking: bool, authentication: bool, offloading: bool) -> DynamicObject {
    let module = |enabled: bool| json!({"enabled": enabled, "conditions": []});
    serde_json::from_value(json!({
        "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster",
        "metadata": {"name": id}, "spec": {"clusterID": id},
        "status": {"role": "Provider", "modules": {
            "networking": module(networking),
            "authentication": module(authentication),
            "offloading": module(offloading),
        }},
    }))
    .unwrap()
}

fn rome() -> Report {
    Report {
        cluster_id: "rome".into(),
        version: "v1.2.0".into(),
        labels: render::labels("region=A,provider=Azure"),
        api_server: "https://172.18.1.2:6443".into(),
        health: Health::default(),
        networks: None,
        peers: vec![peer(&foreign("milan", false, true, true))],
    }
}

#[test]
fn the_boxes_are_upstreams() {
    let expected = "\
┌─ Local installation info ────────────────────────────────────────────────────────┐
|  Cluster ID:     rome                                                            |
|  Version:        v1.2.0                                                          |
|  K8s API server: https://172.18.1.2:6443                                         |
|  Cluster labels                                                                  |
|      provider: Azure                                                             |
|      region:   A                                                                 |
└──────────────────────────────────────────────────────────────────────────────────┘
┌─ Installation health ────────────────────────────────────────────────────────────┐
|  ✔    Liqo is healthy                                                            |
└──────────────────────────────────────────────────────────────────────────────────┘
┌─ Active peerings ────────────────────────────────────────────────────────────────┐
|  milan                                                                           |
|      Role:                  Provider                                             |
|      Networking status:     Disabled                                             |
|      Authentication status: Healthy                                              |
|      Offloading status:     Healthy                                              |
└──────────────────────────────────────────────────────────────────────────────────┘
";

    assert_eq!(rome().boxes(), expected);
}

#[test]
fn the_json_is_upstreams() {
    let expected = json!({
        "health": {"healthy": true},
        "local": {
            "clusterID": "rome",
            "version": "v1.2.0",
            "labels": {"provider": "Azure", "region": "A"},
            "APIServerAddr": "https://172.18.1.2:6443",
        },
        "peerings": {"peers": [{
            "clusterID": "milan",
            "role": "Provider",
            "networkingStatus": "Disabled",
            "authenticationStatus": "Healthy",
            "offloadingStatus": "Healthy",
        }]},
    });

    assert_eq!(rome().value(), expected);
}

#[test]
fn the_warnings_of_networks_without_status_equal_upstreams() {
    let pod: Network = serde_json::from_value(json!({
        "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
        "metadata": {
            "name": "pod-cidr-10-244-0-0-16", "labels": {"ipam.liqo.io/network-type": "pod-cidr"},
        },
        "spec": {"cidr": "10.244.0.0/16"},
    }))
    .unwrap();

    let (networks, warnings) = render::networks(&[pod]);

    assert_eq!(
        warnings[0],
        "unable to get PodCIDRs: the pod CIDR is not yet configured: missing status on Network \"pod-cidr-10-244-0-0-16\""
    );
    assert_eq!(
        warnings[3],
        "unable to get InternalCIDR: the internal CIDR is not yet configured: missing status on the Network resource"
    );
    let expected = "\
|  Pod CIDRs                                                                       |
|  Service CIDR:                                                                   |
|  External CIDR:                                                                  |
|  Internal CIDR:                                                                  |
";
    assert!(draw("Network", &networks.items()).contains(expected));
}

#[test]
fn a_pod_that_is_not_ready_is_shown() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "liqo-gateway-a"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{
                "name": "gateway", "image": "", "imageID": "", "ready": false, "restartCount": 3,
            }],
        },
    }))
    .unwrap();

    let health = render::health(&[pod]);

    let expected = json!({"healthy": false, "unhealthyPods": {"liqo-gateway-a": {
        "status": "Running", "readyContainers": 0, "totalContainers": 1, "restarts": 3,
    }}});
    assert_eq!(health.value(), expected);
}
