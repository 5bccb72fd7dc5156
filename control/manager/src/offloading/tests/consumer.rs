//! VirtualNodes.

use super::side::{MOMENT, Side, key};
use super::{Edit, golden};
use control_api::{Identity, ResourceSlice, VirtualNode};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

pub(super) fn milan() -> Key {
    key("milan", "milan")
}

/// Returns `rome` with the credentials of a slice, and without the slice.
pub(super) fn prepared(seed: u64) -> Side {
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
    assert!(
        rome.is_guarded::<VirtualNode>(),
        "another leader may decide meanwhile"
    );
}

#[test]
fn a_virtual_node_that_is_being_deleted_is_created_again_when_it_is_gone() {
    let mut rome = rome();
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["metadata"]["finalizers"] = json!(["example.com/x"]);
    });
    rome.remove::<VirtualNode>(&milan());
    rome.edit_slice(&milan(), |slice| {
        slice["status"]["resources"] = json!({"cpu": "1"})
    });
    rome.run(MOMENT);
    assert_eq!(
        rome.spec::<VirtualNode>(&milan()),
        golden::virtual_node()["spec"]
    );

    rome.edit::<VirtualNode>(&milan(), |node| node["metadata"]["finalizers"] = json!([]));
    rome.run(MOMENT);
    let hard = &rome.spec::<VirtualNode>(&milan())["resourceQuota"]["hard"];
    assert_eq!(*hard, json!({"cpu": "1"}));
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut rome = prepared(7);
    let namespace = Key::cluster("liqo-tenant-milan");
    rome.edit::<Namespace>(&namespace, |namespace| {
        namespace["metadata"]["finalizers"] = json!(["example.com/x"]);
    });
    rome.remove::<Namespace>(&namespace);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    assert_eq!(rome.requests::<VirtualNode>(), 0);
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
    assert!(rome.replanned().is_empty());
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

    rome.edit::<VirtualNode>(&extra, |node| {
        node["spec"] = json!({"clusterID": "milan", "createNode": false});
    });
    rome.run(MOMENT);
    let spec = rome.spec::<VirtualNode>(&extra);
    assert_eq!(
        spec,
        json!({"clusterID": "milan", "createNode": false, "disableNetworkCheck": false})
    );
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
