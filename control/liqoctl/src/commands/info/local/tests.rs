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
        virtual_nodes: Vec::new(),
        daemon_sets: Vec::new(),
        unreflected: Vec::new(),
        excess: Vec::new(),
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

    assert_eq!(rome().boxes().unwrap(), expected);
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

/// Returns an API server with a virtual node, a DaemonSet, and what prevents reflection.
fn server() -> fake_apiserver::ApiServer {
    let server = fake_apiserver::ApiServer::start();
    server.put(
        "/apis/offloading.liqo.io/v1beta1/namespaces/liqo-tenant-milan/virtualnodes/milan",
        json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
            "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
            "spec": {"clusterID": "milan"},
        }),
    );
    let pod = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
    server.put(
        "/apis/apps/v1/namespaces/logging/daemonsets/agent",
        json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": "logging"},
            "spec": {"selector": {}, "template": {"metadata": {}, "spec": pod}},
        }),
    );
    server.put(
        "/api/v1/namespaces/shop/events/web.1",
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "shop"},
            "reason": "FailedReflection", "message": "already exists",
            "involvedObject": {"kind": "ConfigMap", "namespace": "shop", "name": "web"},
        }),
    );
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    server.put(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/too-much",
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": "too-much",
                "labels": {"liqo.io/aggregate-to-virtual-kubelet-remote": "true"},
            },
            "rules": [rule],
        }),
    );
    server
}

#[tokio::test]
async fn the_virtual_nodes_and_daemon_sets_are_read_unless_a_field_is_requested() {
    let server = server();
    let front = fake_apiserver::Front::start(&server, |_| fake_apiserver::Reply::Forward);
    let cluster = Cluster::behind(&front, "local");
    let installation = Installation {
        cluster_id: "rome".into(),
        namespace: "liqo".into(),
    };
    let read = async |workloads| {
        let parts = Parts {
            network: false,
            workloads,
        };
        collect(&cluster, &installation, parts).await.unwrap()
    };
    let is_of_workloads = |head: &fake_apiserver::Head| {
        [
            "/virtualnodes",
            "/daemonsets",
            "/api/v1/pods",
            "/events",
            "/clusterroles",
        ]
        .iter()
        .any(|part| head.target.contains(part))
    };

    assert!(read(false).await.value()["virtualNodes"].is_null());
    assert_eq!(front.count(is_of_workloads), 0);
    let report = read(true).await;

    assert_eq!(front.count(is_of_workloads), 5);
    let value = report.value();
    assert_eq!(value["virtualNodes"][0]["clusterID"], "milan");
    assert_eq!(value["daemonSets"][0]["namespace"], "logging");
    assert_eq!(value["notReflected"][0]["cause"], "already exists");
    assert_eq!(value["excessiveRights"][0]["clusterRole"], "too-much");
    let boxes = report.boxes().unwrap();
    assert!(
        boxes.contains("─ Virtual nodes ─") && boxes.contains("logging/agent"),
        "{boxes}"
    );
}
