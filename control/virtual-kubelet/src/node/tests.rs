use crate::kubeconfig::Shared;
use crate::settings::Settings;
use crate::side::{Side, kubeconfig, settings};
use control_api::{ForeignCluster, VirtualNode};
use control_runtime::{Cluster, Key};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use std::time::Duration;

fn lease() -> Key {
    Key::new("kube-node-lease", "milan")
}

fn virtual_node() -> Key {
    Key::new("liqo-tenant-milan", "milan")
}

/// From a Node of upstream (v1.2.0). Exceptions: the labels `beta.kubernetes.io/*` and the pod CIDRs, which Kubernetes
/// adds; the annotations by which upstream's virtual kubelet compares objects; times and identity.
#[test]
fn the_node_equals_upstreams() {
    let mut rome = Side::new(1);
    rome.put_foreign("Established", None);
    rome.pass();

    let mut node = rome.node();
    assert_eq!(
        node["metadata"]["labels"],
        json!({
            "alpha.service-controller.kubernetes.io/exclude-balancer": "true",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "milan",
            "kubernetes.io/os": "linux",
            "kubernetes.io/role": "agent",
            "liqo.io/remote-cluster-id": "milan",
            "liqo.io/type": "virtual-node",
            "node.kubernetes.io/exclude-from-external-load-balancers": "true",
            "provider": "AWS",
            "region": "B",
            "storage.liqo.io/available": "true",
            "type": "virtual-kubelet",
        })
    );
    let taint =
        json!({"effect": "NoExecute", "key": "virtual-node.liqo.io/not-allowed", "value": "true"});
    assert_eq!(node["spec"], json!({"taints": [taint]}));
    for condition in node["status"]["conditions"].as_array_mut().unwrap() {
        for time in ["lastHeartbeatTime", "lastTransitionTime"] {
            assert!(condition.as_object_mut().unwrap().remove(time).is_some());
        }
    }
    let resources =
        json!({"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"});
    let sufficient = "The remote cluster is advertising sufficient resources";
    let condition = |type_: &str, reason: &str| json!({"message": sufficient, "reason": reason, "status": "False", "type": type_});
    assert_eq!(
        node["status"],
        json!({
            "addresses": [{"address": "10.244.0.5", "type": "InternalIP"}],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                {
                    "message": "The Liqo Virtual Kubelet is posting ready status",
                    "reason": "KubeletReady",
                    "status": "True",
                    "type": "Ready",
                },
                condition("MemoryPressure", "RemoteClusterHasSufficientMemory"),
                condition("DiskPressure", "RemoteClusterHasNoDiskPressure"),
                condition("PIDPressure", "RemoteClusterHasNoPIDPressure"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                "kubeProxyVersion": "", "kubeletVersion": "v1.35.4", "machineID": "", "operatingSystem": "Linux",
                "osImage": "", "systemUUID": "",
            },
        })
    );
}

#[test]
fn the_node_is_created_once_and_ready_at_once() {
    let mut rome = Side::new(2);
    rome.pass();

    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
    // Here, an API server keeps no status that a creation has.
    assert_eq!(rome.writes::<Node>(), 2);
}

#[test]
fn the_node_has_the_cidrs_of_its_provider_if_their_networks_are_connected() {
    let key = Key::cluster("milan");
    let cidrs = |rome: &mut Side| {
        rome.pass();
        let node = rome.simulation.local().get::<Node>(&key).unwrap();
        node["metadata"]["annotations"]["liqo.io/remote-pod-cidrs"].clone()
    };
    assert_eq!(cidrs(&mut Side::new(4)), "10.244.0.0/16=10.71.0.0/16");

    let settings = Settings {
        pod_remaps: Vec::new(),
        ..settings()
    };
    assert!(cidrs(&mut Side::with_settings(4, settings)).is_null());
}

#[test]
fn conditions_follow_network_and_resources() {
    let mut rome = Side::new(3);
    rome.pass();
    assert_eq!(
        rome.conditions()[4],
        "NetworkUnavailable=False LiqoNetworkingUp"
    );

    rome.put_foreign("Established", Some("Error"));
    rome.pass();
    assert_eq!(rome.conditions()[0], "Ready=False KubeletNotReady");
    assert_eq!(
        rome.conditions()[4],
        "NetworkUnavailable=True LiqoNetworkingDown"
    );

    rome.put_foreign("Established", None);
    rome.pass();
    assert_eq!(
        rome.conditions().len(),
        4,
        "without networking, there is nothing to check"
    );
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");

    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["resourceQuota"]["hard"] = json!({"cpu": "0", "memory": "1Gi"});
    });
    assert_eq!(
        rome.conditions(),
        [
            "Ready=False KubeletNotReady",
            "MemoryPressure=True RemoteClusterHasMemoryPressure",
            "DiskPressure=True RemoteClusterHasDiskPressure",
            "PIDPressure=True RemoteClusterHasPIDPressure",
        ]
    );
    let capacity = rome.node()["status"]["capacity"].clone();
    assert_eq!(
        capacity,
        json!({"cpu": "0", "memory": "1Gi"}),
        "removed resources go"
    );
}

/// The API server stores the canonical form of a quantity.
#[test]
fn a_quantity_that_is_written_otherwise_is_no_change() {
    let mut rome = Side::new(3);
    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["resourceQuota"]["hard"] = json!({"cpu": "4000m", "memory": "1024Mi"});
    });
    let canonical = json!({"cpu": "4", "memory": "1Gi"});
    let before = rome.writes::<Node>();
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        node["status"]["capacity"] = canonical.clone();
        node["status"]["allocatable"] = canonical.clone();
    });
    assert_eq!(rome.writes::<Node>(), before);
    assert_eq!(rome.node()["status"]["capacity"], canonical);

    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["resourceQuota"]["hard"]["memory"] = json!("2048Mi");
    });
    let changed = json!({"cpu": "4", "memory": "2048Mi"});
    assert_eq!(rome.node()["status"]["allocatable"], changed);
}

#[test]
fn the_network_is_not_checked_if_a_user_says_so() {
    let mut settings = settings();
    settings.checks_network = false;
    let mut rome = Side::with_settings(3, settings);
    rome.put_foreign("Established", Some("Error"));
    rome.pass();

    assert_eq!(rome.conditions().len(), 4);
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
}

#[test]
fn labels_and_taints_of_others_stay_and_those_of_the_node_are_repaired() {
    let mut rome = Side::new(4);
    rome.pass();
    let unschedulable = json!({"effect": "NoSchedule", "key": "node.kubernetes.io/unschedulable"});
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        node["metadata"]["labels"]["team"] = json!("a");
        node["metadata"]["labels"]["region"] = json!("C");
        node["spec"]["taints"] = json!([unschedulable]);
    });

    let node = rome.node();
    assert_eq!(node["metadata"]["labels"]["team"], "a");
    assert_eq!(node["metadata"]["labels"]["region"], "B");
    let taints = node["spec"]["taints"].as_array().unwrap();
    assert_eq!(taints.len(), 2);
    assert!(taints.contains(&unschedulable));
}

/// The provider and users choose labels of the VirtualNode.
#[test]
fn labels_of_the_virtual_node_do_not_replace_those_of_liqo() {
    let mut rome = Side::new(5);
    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["labels"] =
            json!({"liqo.io/type": "other", "liqo.io/remote-cluster-id": "naples"});
    });

    let labels = rome.node()["metadata"]["labels"].clone();
    assert_eq!(labels["liqo.io/type"], "virtual-node");
    assert_eq!(labels["liqo.io/remote-cluster-id"], "milan");
}

#[test]
fn a_node_of_another_kind_is_never_changed() {
    let mut rome = Side::new(6);
    rome.put::<Node>(
        json!({"metadata": {"name": "milan", "labels": {"liqo.io/remote-cluster-id": "milan"}}}),
    );
    let before = rome.node();
    rome.pass();

    assert_eq!(rome.node(), before);
    assert_eq!(rome.object::<Lease>(&lease()), Value::Null);
    assert!(
        rome.events().iter().any(|it| it.starts_with("NodeExists")),
        "{:?}",
        rome.events()
    );
}

#[test]
fn without_a_node_nothing_is_written() {
    let mut settings = settings();
    settings.creates_node = false;
    let mut rome = Side::with_settings(7, settings);
    rome.pass();

    assert_eq!(rome.node(), Value::Null);
    assert_eq!(rome.object::<Lease>(&lease()), Value::Null);
}

#[test]
fn the_lease_is_renewed_while_the_provider_responds() {
    let mut rome = Side::new(8);
    rome.pass();
    assert_eq!(
        rome.object::<Lease>(&lease())["spec"]["leaseDurationSeconds"],
        40
    );
    rome.simulation.pass(Duration::from_secs(100));
    let renewals = rome.writes::<Lease>();
    assert!(
        (10..=12).contains(&renewals),
        "{renewals} renewals in 102 s"
    );

    rome.put_foreign("Error", None);
    rome.pass();
    let before = rome.writes::<Lease>();
    rome.simulation.pass(Duration::from_secs(100));
    assert_eq!(
        rome.writes::<Lease>(),
        before,
        "the node controller takes notice"
    );
    rome.put_foreign("Established", None);
    rome.pass();
    assert!(rome.writes::<Lease>() > before);
}

/// Returns the taint of a Node whose provider does not respond.
fn away(rome: &mut Side) -> Option<Value> {
    let taints = rome.node()["spec"]["taints"].as_array().cloned();
    let mut taints = taints.into_iter().flatten();
    taints.find(|it| it["key"] == "virtual-node.liqo.io/api-server-unreachable")
}

/// The API server of the provider is upgraded, for example, while the networks stay connected.
#[test]
fn a_node_stays_ready_and_takes_no_pods_while_only_the_api_server_is_away() {
    let mut rome = Side::new(15);
    rome.pass();
    assert_eq!(away(&mut rome), None);

    rome.put_outage(Some("Established"));
    rome.pass();
    assert_eq!(away(&mut rome).unwrap()["effect"], "NoSchedule");
    let before = rome.writes::<Lease>();
    rome.simulation.pass(Duration::from_secs(240));
    assert!(rome.writes::<Lease>() > before + 20, "the Node is alive");
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
    let message = rome.node()["status"]["conditions"][0]["message"].clone();
    assert!(
        message.as_str().unwrap().contains("does not respond"),
        "{message}"
    );

    rome.put_foreign("Established", Some("Established"));
    rome.pass();
    assert_eq!(away(&mut rome), None);
    let message = rome.node()["status"]["conditions"][0]["message"].clone();
    assert!(!message.as_str().unwrap().contains("respond"), "{message}");
}

/// The node controller then finds that the Lease is not renewed.
#[test]
fn after_the_grace_period_the_node_is_lost_and_its_conditions_are_the_node_controllers() {
    let mut rome = Side::new(16);
    rome.put_outage(Some("Established"));
    rome.simulation.pass(Duration::from_secs(310));
    let before = rome.writes::<Lease>();
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        for condition in conditions.iter_mut().take(4) {
            condition["status"] = json!("Unknown");
            condition["reason"] = json!("NodeStatusUnknown");
        }
    });
    let lost = rome.conditions();
    assert_eq!(lost[0], "Ready=Unknown NodeStatusUnknown");
    let heartbeat = rome.node()["status"]["conditions"][0]["lastHeartbeatTime"].clone();
    rome.simulation.pass(Duration::from_secs(1200));
    assert_eq!(rome.writes::<Lease>(), before);
    assert_eq!(rome.conditions(), lost);
    assert_eq!(
        rome.node()["status"]["conditions"][0]["lastHeartbeatTime"],
        heartbeat
    );

    // The loss of the network is shown.
    rome.put_outage(Some("Error"));
    rome.pass();
    assert_eq!(rome.conditions()[0], "Ready=False KubeletNotReady");
    rome.put_foreign("Established", Some("Established"));
    rome.pass();
    assert_eq!(rome.conditions()[0], "Ready=True KubeletReady");
    assert!(rome.writes::<Lease>() > before);
}

#[test]
fn without_a_connection_of_the_networks_there_is_no_grace_period() {
    for network in [None, Some("Error")] {
        let mut rome = Side::new(17);
        rome.pass();
        rome.put_outage(network);
        rome.pass();
        let before = rome.writes::<Lease>();
        rome.simulation.pass(Duration::from_secs(60));
        assert_eq!(rome.writes::<Lease>(), before, "{network:?}");
        assert!(away(&mut rome).is_some());
    }
}

#[test]
fn the_provider_is_probed_if_the_foreign_cluster_does_not_say_whether_it_responds() {
    let mut rome = Side::new(9);
    rome.simulation
        .local()
        .remove::<ForeignCluster>(&Key::cluster("milan"));
    let provider = Cluster::remote("milan");
    rome.pass();
    assert_eq!(rome.writes::<Lease>(), 1);
    rome.simulation.pass(Duration::from_secs(60));
    let probes = rome.simulation.probes(&provider);
    assert!((5..=8).contains(&probes), "{probes} probes in 62 s");

    rome.simulation.partition(&provider);
    rome.simulation.pass(Duration::from_secs(40));
    let before = rome.writes::<Lease>();
    rome.simulation.pass(Duration::from_secs(60));
    assert_eq!(rome.writes::<Lease>(), before);
    rome.simulation.heal(&provider);
    rome.simulation.pass(Duration::from_secs(30));
    assert!(rome.writes::<Lease>() > before);
}

#[test]
fn heartbeats_of_the_status_are_rare() {
    let mut rome = Side::new(10);
    rome.simulation.pass(Duration::from_secs(900));
    let writes = rome.writes::<Node>();
    assert!((3..=4).contains(&writes), "{writes} writes in 15 minutes");
}

#[test]
fn a_kubeconfig_that_runs_a_program_is_refused() {
    let mut rome = Side::new(11);
    let text =
        kubeconfig("192.0.2.1").replace("\"token\":\"secret\"", "\"exec\":{\"command\":\"sh\"}");
    let content: &Shared = &rome.content;
    content.set(Ok(text));
    rome.simulation.replay();
    rome.pass();

    let events = rome.events();
    assert!(
        events
            .iter()
            .any(|it| it.starts_with("InvalidKubeconfig") && it.contains("exec")),
        "{events:?}"
    );
}

#[test]
fn labels_and_annotations_that_the_virtual_node_no_longer_has_are_removed() {
    let mut rome = Side::new(13);
    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["annotations"] = json!({"note": "a", "kept": "b"});
    });
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        node["metadata"]["labels"]["team"] = "blue".into();
        node["metadata"]["annotations"]["owner"] = "blue".into();
    });
    // Another process, which has not seen the VirtualNode of before.
    rome.simulation.crash(0);
    rome.edit::<VirtualNode>(&virtual_node(), |node| {
        node["spec"]["labels"] = json!({"provider": "AWS"});
        node["spec"]["annotations"] = json!({"kept": "b"});
    });

    let metadata = rome.node()["metadata"].clone();
    assert_eq!(metadata["labels"]["region"], Value::Null);
    assert_eq!(metadata["labels"]["provider"], "AWS");
    assert_eq!(metadata["labels"]["team"], "blue");
    assert_eq!(metadata["annotations"]["note"], Value::Null);
    assert_eq!(metadata["annotations"]["kept"], "b");
    assert_eq!(metadata["annotations"]["owner"], "blue");
}

/// From a Node of upstream (v1.2.0), whose annotation has further fields.
#[test]
fn labels_of_upstreams_virtual_kubelet_are_removed_as_well() {
    let mut rome = Side::new(14);
    rome.pass();
    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        let applied = json!({
            "name": "milan", "creationTimestamp": null,
            "labels": {"stale": "a", "type": "virtual-kubelet"},
        });
        node["metadata"]["labels"]["stale"] = "a".into();
        node["metadata"]["annotations"]["virtual-kubelet.io/last-applied-object-meta"] =
            applied.to_string().into();
    });

    let labels = rome.node()["metadata"]["labels"].clone();
    assert_eq!(labels["stale"], Value::Null);
    assert_eq!(labels["type"], "virtual-kubelet");
}
