//! VirtualNodes.

use super::side::{MOMENT, Side, key};
use super::{Edit, golden};
use control_api::{Identity, ResourceSlice, VirtualNode};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, Node};
use serde_json::{Value, json};

fn milan() -> Key {
    key("milan", "milan")
}

/// Returns `rome` with the credentials of a slice, and without the slice.
fn prepared(seed: u64) -> Side {
    let mut rome = Side::new(seed);
    rome.put_peer("milan");
    rome.put_identity("milan", "milan", true);

    rome
}

/// Returns `rome` with the VirtualNode of a slice that `milan` has accepted.
fn rome() -> Side {
    let mut rome = prepared(7);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 1);
    assert_eq!(rome.events(), [""; 0]);

    rome
}

#[test]
fn a_virtual_node_is_complete_but_for_its_virtual_kubelet() {
    let mut rome = rome();

    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=None", "Node=None"]
    );
    let node = rome.object::<VirtualNode>(&milan()).unwrap();
    assert_eq!(node["metadata"]["finalizers"], Value::Null);
    assert_eq!(rome.requests::<VirtualNode>(), 2, "creation and status");
    assert!(rome.replanned().is_empty());
}

#[test]
fn a_virtual_node_needs_acceptance_a_request_and_credentials() {
    let accepted = golden::local();
    let edits: [Edit; 7] = [
        ("identity", |slice| {
            slice["status"]["conditions"][0]["status"] = json!("Denied")
        }),
        ("resources", |slice| {
            slice["status"]["conditions"][1]["status"] = json!("Denied")
        }),
        ("no status", |slice| slice["status"] = json!({})),
        ("no annotation", |slice| {
            slice["metadata"]["annotations"] = json!({})
        }),
        ("empty annotation", |slice| {
            slice["metadata"]["annotations"]["liqo.io/create-virtual-node"] = json!("");
        }),
        ("annotation false", |slice| {
            slice["metadata"]["annotations"]["liqo.io/create-virtual-node"] = json!("false");
        }),
        ("not to be replicated", |slice| {
            slice["metadata"]["labels"]["liqo.io/replication"] = json!("false");
        }),
    ];
    for (missing, edit) in edits {
        let mut rome = prepared(7);
        let mut slice = accepted.clone();
        edit(&mut slice);
        rome.put::<ResourceSlice>(slice);
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 0, "{missing}");

        rome.put::<ResourceSlice>(accepted.clone());
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{missing}");
    }
}

#[test]
fn a_virtual_node_waits_for_the_kubeconfig_of_its_own_identity() {
    let edits: [Edit; 5] = [
        ("no Secret", |identity| identity["status"] = json!({})),
        ("another slice", |identity| {
            identity["metadata"]["labels"]["liqo.io/resourceslice-name"] = json!("other");
        }),
        ("another provider", |identity| {
            identity["spec"]["clusterID"] = json!("naples")
        }),
        ("control plane", |identity| {
            identity["spec"]["type"] = json!("ControlPlane")
        }),
        ("other name", |identity| {
            identity["metadata"]["name"] = json!("other")
        }),
    ];
    for (wrong, edit) in edits {
        let mut rome = prepared(7);
        let identity = key("milan", "resourceslice-milan");
        let mut object = rome.object::<Identity>(&identity).unwrap();
        edit(&mut object);
        rome.remove::<Identity>(&identity);
        rome.put::<Identity>(object);
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 0, "{wrong}");

        rome.put_identity("milan", "milan", true);
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{wrong}");
    }
}

#[test]
fn a_virtual_node_follows_the_status_of_its_slice_and_keeps_fields_of_users() {
    let mut rome = rome();
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["spec"]["createNode"] = json!(false);
        node["spec"]["taints"] = json!([{"key": "a", "effect": "NoSchedule"}]);
        node["spec"]["offloadingPatch"] = json!({"runtimeClassName": "kata"});
    });
    rome.edit_slice(&milan(), |slice| {
        let status = &mut slice["status"];
        status["resources"] = json!({"cpu": "1"});
        status["nodeLabels"] = json!({"region": "C", "topology.liqo.io/zone": "1"});
        status["nodeSelector"] = json!({"kubernetes.io/arch": "arm64"});
        status["storageClasses"] = json!([{"storageClassName": "fast"}]);
        status["ingressClasses"] = json!([{"ingressClassName": "nginx", "default": true}]);
        status["loadBalancerClasses"] = json!([{"loadBalancerClassName": "example.com/lb"}]);
    });
    rome.run(MOMENT);

    let spec = rome.spec::<VirtualNode>(&milan());
    assert_eq!(
        spec,
        json!({
            "clusterID": "milan",
            "createNode": false,
            "disableNetworkCheck": false,
            "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-milan"},
            "labels": {"liqo.io/remote-cluster-id": "milan", "region": "C", "topology.liqo.io/zone": "1"},
            "resourceQuota": {"hard": {"cpu": "1"}},
            "storageClasses": [{"storageClassName": "fast"}],
            "ingressClasses": [{"ingressClassName": "nginx", "default": true}],
            "loadBalancerClasses": [{"loadBalancerClassName": "example.com/lb"}],
            "taints": [{"key": "a", "effect": "NoSchedule"}],
            "offloadingPatch": {
                "runtimeClassName": "kata",
                "nodeSelector": {"kubernetes.io/arch": "arm64"},
            },
        })
    );
    assert!(rome.replanned().is_empty());
}

/// The deletion of a VirtualNode evicts its pods.
#[test]
fn a_virtual_node_stays_if_the_provider_withdraws_its_acceptance() {
    let mut rome = rome();
    rome.edit_slice(&milan(), |slice| {
        slice["status"]["conditions"][1]["status"] = json!("Denied");
        slice["status"]["resources"] = json!({});
    });
    rome.run(MOMENT);

    assert_eq!(
        rome.spec::<VirtualNode>(&milan()),
        golden::virtual_node()["spec"]
    );
}

#[test]
fn a_virtual_node_goes_with_its_slice() {
    let mut rome = rome();
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);

    let mut rome = self::rome();
    rome.simulation.crash(0);
    rome.simulation.crash(1);
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0, "while no manager ran");

    let mut rome = self::rome();
    rome.edit_slice(&milan(), |slice| {
        slice["metadata"]["finalizers"] = json!(["crdreplicator.liqo.io/resource"]);
    });
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<ResourceSlice>(), 1);
    assert_eq!(
        rome.count::<VirtualNode>(),
        0,
        "while the slice waits for the provider"
    );
}

#[test]
fn a_virtual_node_that_a_user_deletes_is_created_again_while_its_slice_stays() {
    let mut rome = rome();
    rome.remove::<VirtualNode>(&milan());
    rome.run(MOMENT);

    assert_eq!(
        rome.spec::<VirtualNode>(&milan()),
        golden::virtual_node()["spec"]
    );
}

#[test]
fn the_finalizer_of_an_upstream_installation_delays_no_deletion() {
    let mut rome = rome();
    let upstream = json!(["virtualnode-controller.liqo.io/finalizer"]);
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["metadata"]["finalizers"] = upstream.clone();
        let running = json!({"type": "VirtualKubelet", "status": "Running"});
        let node_running = json!({"type": "Node", "status": "Running"});
        // Upstream's lists may have several entries of a type.
        node["status"]["conditions"] = json!([running, node_running, running, node_running]);
    });
    rome.run(MOMENT);
    assert_eq!(
        rome.conditions(&milan()),
        ["VirtualKubelet=None", "Node=None"]
    );
    let node = rome.object::<VirtualNode>(&milan()).unwrap();
    assert_eq!(
        node["metadata"]["finalizers"], upstream,
        "it stays until the deletion"
    );

    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
}

#[test]
fn a_finalizer_of_another_controller_stays() {
    let mut rome = rome();
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["metadata"]["finalizers"] =
            json!(["example.com/x", "virtualnode-controller.liqo.io/finalizer"]);
    });
    rome.remove::<ResourceSlice>(&milan());
    rome.run(MOMENT);

    let node = rome.object::<VirtualNode>(&milan()).unwrap();
    assert_eq!(node["metadata"]["finalizers"], json!(["example.com/x"]));
}

#[test]
fn a_virtual_node_of_a_user_gets_defaults_and_status() {
    let mut rome = Side::new(7);
    rome.put_peer("milan");
    let mut node = golden::virtual_node();
    node["metadata"]["name"] = json!("extra");
    node["metadata"]["ownerReferences"] = json!([]);
    let spec = node["spec"].as_object_mut().unwrap();
    spec.remove("createNode");
    spec.insert("disableNetworkCheck".to_owned(), json!(true));
    rome.put::<VirtualNode>(node);
    rome.run(MOMENT);

    let extra = key("milan", "extra");
    assert_eq!(
        rome.conditions(&extra),
        ["VirtualKubelet=None", "Node=None"]
    );
    let spec = rome.spec::<VirtualNode>(&extra);
    assert_eq!(
        (&spec["createNode"], &spec["disableNetworkCheck"]),
        (&json!(true), &json!(true))
    );

    rome.edit::<VirtualNode>(&extra, |node| node["spec"]["createNode"] = json!(false));
    let before = rome.object::<VirtualNode>(&extra).unwrap();
    rome.run(MOMENT);
    assert!(rome.replanned().is_empty());
    assert_eq!(
        rome.object::<VirtualNode>(&extra).unwrap(),
        before,
        "with the time of the transition"
    );

    rome.remove::<VirtualNode>(&extra);
    rome.run(MOMENT);
    assert_eq!(rome.count::<VirtualNode>(), 0);
}

#[test]
fn a_virtual_node_that_is_not_of_the_slice_is_not_overwritten() {
    for namespace in ["liqo-tenant-milan", "liqo-tenant-naples"] {
        let mut rome = prepared(7);
        rome.put_peer("naples");
        let mut other = golden::virtual_node();
        other["metadata"]["namespace"] = json!(namespace);
        other["metadata"]["ownerReferences"] = json!([]);
        other["spec"]["resourceQuota"]["hard"] = json!({"cpu": "1"});
        rome.put::<VirtualNode>(other.clone());
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);

        let other_key = Key::new(namespace, "milan");
        assert_eq!(rome.spec::<VirtualNode>(&other_key), other["spec"]);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{namespace}");
        let events = rome.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let expected =
            format!("ResourceSlice milan VirtualNodeExists: VirtualNode {namespace}/milan exists");
        assert!(events[0].starts_with(&expected), "{events:?}");

        rome.remove::<VirtualNode>(&other_key);
        rome.run(MOMENT);
        assert_eq!(
            rome.spec::<VirtualNode>(&milan()),
            golden::virtual_node()["spec"]
        );
    }
}

#[test]
fn a_node_that_is_not_of_the_provider_prevents_a_virtual_node() {
    for labels in [
        json!({}),
        json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "naples"}),
        json!({"liqo.io/remote-cluster-id": "milan"}),
    ] {
        let mut rome = prepared(7);
        rome.put_node("milan", &labels);
        rome.put::<ResourceSlice>(golden::local());
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 0, "{labels}");
        let events = rome.events();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].starts_with("ResourceSlice milan NodeExists: Node milan exists"));

        rome.remove::<Node>(&Key::cluster("milan"));
        rome.run(MOMENT);
        assert_eq!(rome.count::<VirtualNode>(), 1, "{labels}");

        rome.put_node("milan", &labels);
        rome.run(MOMENT);
        let events = rome.events();
        assert!(
            events
                .iter()
                .any(|it| it.starts_with("VirtualNode milan NodeExists")),
            "{events:?}"
        );
    }

    let mut rome = prepared(7);
    let own = json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan"});
    rome.put_node("milan", &own);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);
    assert_eq!(
        rome.count::<VirtualNode>(),
        1,
        "the Node is of the provider"
    );
}

#[test]
fn the_oldest_slice_of_a_name_gets_the_virtual_node() {
    for seed in 0..20 {
        let mut rome = prepared(seed);
        rome.put_peer("naples");
        rome.put_identity("naples", "milan", true);
        let mut younger = golden::local();
        younger["metadata"]["namespace"] = json!("liqo-tenant-naples");
        younger["metadata"]["creationTimestamp"] = json!("2026-11-21T07:15:28Z");
        younger["spec"]["providerClusterID"] = json!("naples");
        younger["metadata"]["labels"]["liqo.io/remoteID"] = json!("naples");
        younger["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");
        rome.put::<ResourceSlice>(younger);
        rome.put::<ResourceSlice>(golden::local());
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 1, "seed {seed}");
        assert!(rome.object::<VirtualNode>(&milan()).is_some());
        let events = rome.events();
        assert!(
            events
                .iter()
                .any(|it| it.contains("DuplicateName") || it.contains("VirtualNodeExists"))
        );

        rome.remove::<ResourceSlice>(&milan());
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 1);
        assert!(
            rome.object::<VirtualNode>(&key("naples", "milan"))
                .is_some()
        );
    }
}

/// Users of other namespaces, and consumers of this cluster, cannot keep a slice from its VirtualNode.
#[test]
fn objects_of_others_claim_no_name() {
    let mut rome = prepared(7);
    rome.put_peer("naples");
    rome.put::<Namespace>(json!({"metadata": {"name": "other"}}));
    let mut slice = golden::local();
    slice["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    slice["metadata"]["namespace"] = json!("other");
    rome.put::<ResourceSlice>(slice.clone());
    slice["metadata"]["namespace"] = json!("liqo-tenant-naples");
    slice["metadata"]["labels"]["liqo.io/replicated"] = json!("true");
    rome.put::<ResourceSlice>(slice);
    let mut node = golden::virtual_node();
    node["metadata"]["namespace"] = json!("other");
    rome.put::<VirtualNode>(node);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert!(rome.object::<VirtualNode>(&milan()).is_some());
}

#[test]
fn a_slice_that_names_another_provider_has_no_virtual_node() {
    let edits: [Edit; 4] = [
        ("spec.providerClusterID", |slice| {
            slice["spec"]["providerClusterID"] = json!("naples")
        }),
        ("liqo.io/remoteID", |slice| {
            slice["metadata"]["labels"]["liqo.io/remoteID"] = json!("naples");
        }),
        ("liqo.io/remote-cluster-id", |slice| {
            slice["metadata"]["labels"]["liqo.io/remote-cluster-id"] = json!("naples");
        }),
        ("63 at most", |slice| {
            slice["metadata"]["name"] = json!("a".repeat(64))
        }),
    ];
    for (named, edit) in edits {
        let mut rome = prepared(7);
        rome.put_identity("milan", &"a".repeat(64), true);
        let mut slice = golden::local();
        edit(&mut slice);
        rome.put::<ResourceSlice>(slice);
        rome.run(MOMENT);

        assert_eq!(rome.count::<VirtualNode>(), 0, "{named}");
        let events = rome.events();
        assert!(events.len() == 1 && events[0].contains(named), "{events:?}");
    }
}

#[test]
fn virtual_nodes_converge_after_crashes_and_changes_of_the_leader() {
    for seed in 0..40 {
        let mut rome = prepared(seed);
        rome.put::<ResourceSlice>(golden::local());
        rome.run_with_faults();
        assert_eq!(
            rome.spec::<VirtualNode>(&milan()),
            golden::virtual_node()["spec"],
            "seed {seed}"
        );
        assert_eq!(
            rome.conditions(&milan()),
            ["VirtualKubelet=None", "Node=None"]
        );

        rome.edit_slice(&milan(), |slice| {
            slice["status"]["resources"] = json!({"cpu": "1"})
        });
        rome.run_with_faults();
        let quota = &rome.spec::<VirtualNode>(&milan())["resourceQuota"];
        assert_eq!(*quota, json!({"hard": {"cpu": "1"}}), "seed {seed}");
        assert!(rome.replanned().is_empty(), "seed {seed}");

        rome.edit::<VirtualNode>(&milan(), |node| {
            node["metadata"]["finalizers"] = json!(["virtualnode-controller.liqo.io/finalizer"]);
        });
        rome.remove::<VirtualNode>(&milan());
        rome.run(std::time::Duration::from_millis(seed));
        rome.remove::<ResourceSlice>(&milan());
        rome.remove::<Identity>(&key("milan", "resourceslice-milan"));
        rome.run_with_faults();
        assert_eq!(rome.count::<VirtualNode>(), 0, "seed {seed}");
        assert!(rome.redundant().is_empty(), "{:?}", rome.redundant());
    }
}
