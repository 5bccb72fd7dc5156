//! Offloaded namespaces.

use super::{Side, key};
use control_api::{ForeignCluster, NamespaceMap, NamespaceOffloading, VirtualNode};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::{Value, json};

/// Returns `rome` with the providers `milan` in the north and `naples` in the south.
fn rome(seed: u64) -> Side {
    let mut rome = Side::new("rome", seed);
    for (peer, region) in [("milan", "north"), ("naples", "south")] {
        rome.put_peer(peer);
        rome.put_node(peer, peer, &json!({"region": region}));
    }
    rome.pass();
    rome
}

fn south() -> Value {
    json!({"clusterSelector": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "region", "operator": "In", "values": ["south"]}]},
    ]}})
}

fn accepted(remote: &str) -> Value {
    json!({"shop": {"phase": "Accepted", "remoteNamespace": remote}})
}

fn offloading_key() -> Key {
    Key::new("shop", "offloading")
}

#[test]
fn a_namespace_is_requested_of_all_providers_without_a_selector() {
    let mut rome = rome(1);
    rome.offload("shop", &json!({}));

    assert_eq!(rome.requested("milan"), json!({"shop": "shop-rome"}));
    assert_eq!(rome.requested("naples"), json!({"shop": "shop-rome"}));
    assert!(rome.is_scheduling("shop"));
    let status = rome.status("shop");
    assert_eq!(status["offloadingPhase"], "InProgress");
    assert_eq!(status["remoteNamespaceName"], "shop-rome");
    assert_eq!(status["observedGeneration"], 1);
    rome.assert_settled();
}

#[test]
fn without_a_provider_no_cluster_is_selected() {
    let mut rome = Side::new("rome", 1);
    rome.offload("shop", &json!({}));

    assert_eq!(rome.status("shop")["offloadingPhase"], "NoClusterSelected");
    rome.put_peer("milan");
    rome.put_node("milan", "milan", &json!({}));
    rome.pass();
    assert_eq!(rome.status("shop")["offloadingPhase"], "InProgress");
    rome.assert_settled();
}

#[test]
fn no_namespace_map_exists_before_a_namespace_is_offloaded() {
    let rome = rome(1);
    assert_eq!(rome.requests::<NamespaceMap>(), 0);
}

#[test]
fn a_selector_restricts_the_providers() {
    let mut rome = rome(2);
    rome.offload("shop", &south());
    rome.respond("naples", &accepted("shop-rome"));

    assert_eq!(rome.requested("milan"), Value::Null);
    assert_eq!(rome.requested("naples"), json!({"shop": "shop-rome"}));
    assert_eq!(rome.status("shop")["offloadingPhase"], "Ready");
    assert_eq!(
        rome.conditions("shop", "milan"),
        ["OffloadingRequired=False ClusterNotSelected"]
    );
    assert_eq!(
        rome.conditions("shop", "naples"),
        [
            "OffloadingRequired=True ClusterSelected",
            "Ready=True NamespaceCreated"
        ]
    );
    rome.assert_settled();
}

#[test]
fn the_labels_of_the_node_precede_those_of_the_virtual_node() {
    let mut rome = rome(3);
    rome.offload("shop", &south());
    let labels = |region: &str| json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "milan", "region": region});
    rome.put::<Node>(json!({"metadata": {"name": "milan", "labels": labels("south")}}));
    rome.pass();
    assert_eq!(rome.requested("milan"), json!({"shop": "shop-rome"}));

    rome.edit::<Node>(&Key::cluster("milan"), |node| {
        node["metadata"]["labels"] = labels("north");
    });
    assert_eq!(rome.requested("milan"), json!({}));
    rome.assert_stable();
}

/// `liqoctl test network` of upstream labels the workers of the consumer so.
#[test]
fn a_node_that_is_not_virtual_says_nothing_about_a_provider() {
    let mut rome = rome(3);
    rome.offload(
        "shop",
        &json!({"clusterSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "region", "operator": "DoesNotExist"}]},
        ]}}),
    );
    let labels = json!({"liqo.io/remote-cluster-id": "milan"});
    rome.put::<Node>(json!({"metadata": {"name": "milan", "labels": labels}}));
    rome.edit::<VirtualNode>(&key("milan", "milan"), |node| {
        node["spec"]["labels"]["zone"] = json!("a");
    });

    assert_eq!(rome.requested("milan"), Value::Null);
}

#[test]
fn a_namespace_that_no_longer_selects_a_provider_is_withdrawn() {
    let mut rome = rome(4);
    rome.offload("shop", &json!({}));
    rome.respond("milan", &accepted("shop-rome"));
    rome.edit::<NamespaceOffloading>(&offloading_key(), |it| it["spec"] = south());

    assert_eq!(rome.requested("milan"), json!({}));
    assert_eq!(
        rome.conditions("shop", "milan"),
        [
            "OffloadingRequired=False ClusterNotSelected",
            "Ready=False Terminating"
        ]
    );
    rome.respond("milan", &json!({}));
    assert_eq!(
        rome.conditions("shop", "milan"),
        ["OffloadingRequired=False ClusterNotSelected"]
    );
}

#[test]
fn refusals_of_providers_are_reported() {
    let mut rome = rome(5);
    rome.offload("shop", &json!({}));
    let refused = json!({"shop": {"phase": "CreationLoopBackOff", "remoteNamespace": "shop-rome"}});
    rome.respond("milan", &refused);
    assert_eq!(rome.status("shop")["offloadingPhase"], "SomeFailed");
    rome.respond("naples", &refused);
    assert_eq!(rome.status("shop")["offloadingPhase"], "AllFailed");
    rome.respond("naples", &accepted("shop-rome"));
    rome.respond("milan", &accepted("shop-rome"));
    assert_eq!(rome.status("shop")["offloadingPhase"], "Ready");
}

#[test]
fn the_strategy_local_schedules_no_pod_elsewhere() {
    let mut rome = rome(6);
    rome.offload("shop", &json!({"podOffloadingStrategy": "Local"}));
    assert!(!rome.is_scheduling("shop"));
    assert_eq!(rome.requested("milan"), json!({"shop": "shop-rome"}));

    rome.edit::<NamespaceOffloading>(&offloading_key(), |it| {
        it["spec"]["podOffloadingStrategy"] = json!("Remote");
    });
    assert!(rome.is_scheduling("shop"));
}

#[test]
fn an_offloading_ends_when_all_remote_namespaces_are_gone() {
    let mut rome = rome(7);
    rome.offload("shop", &json!({}));
    for peer in ["milan", "naples"] {
        rome.respond(peer, &accepted("shop-rome"));
    }
    rome.remove::<NamespaceOffloading>(&offloading_key());

    assert!(!rome.is_scheduling("shop"));
    assert_eq!(rome.requested("milan"), json!({}));
    assert_eq!(rome.status("shop")["offloadingPhase"], "Terminating");
    rome.respond("milan", &json!({}));
    assert!(rome.status("shop").is_object(), "naples has the namespace");
    rome.respond("naples", &json!({}));
    assert_eq!(
        rome.object::<NamespaceOffloading>(&offloading_key()),
        Value::Null
    );
    rome.assert_settled();
}

#[test]
fn an_offloading_does_not_wait_for_a_provider_that_is_dead() {
    let mut rome = rome(8);
    rome.offload("shop", &south());
    rome.respond("naples", &accepted("shop-rome"));
    rome.remove::<NamespaceOffloading>(&offloading_key());
    assert!(rome.status("shop").is_object());

    rome.put::<ForeignCluster>(json!({
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {
            "name": "naples",
            "annotations": {"liqo.io/foreign-cluster-permanently-unreachable": "true"},
        },
        "spec": {"clusterID": "naples"},
    }));
    rome.pass();

    assert_eq!(
        rome.object::<NamespaceOffloading>(&offloading_key()),
        Value::Null
    );
}

#[test]
fn entries_of_offloadings_that_are_gone_are_withdrawn() {
    let mut rome = rome(9);
    rome.offload("shop", &json!({}));
    rome.edit::<NamespaceMap>(&key("milan", "milan"), |map| {
        map["spec"]["desiredMapping"]["old"] = json!("old-rome");
    });
    assert_eq!(rome.requested("milan"), json!({"shop": "shop-rome"}));

    rome.put_namespace("left", &json!({"liqo.io/scheduling-enabled": "true"}));
    rome.pass();
    assert!(
        !rome.is_scheduling("left"),
        "the webhook would refuse its pods"
    );
}

#[test]
fn the_mapping_lasts_as_long_as_the_last_virtual_node() {
    let mut rome = rome(10);
    rome.offload("shop", &json!({}));
    rome.respond("milan", &accepted("shop-rome"));
    rome.edit::<VirtualNode>(&key("milan", "milan"), |node| {
        node["metadata"]["finalizers"] = json!(["virtualnode-controller.liqo.io/finalizer"]);
    });
    rome.remove::<VirtualNode>(&key("milan", "milan"));
    assert_eq!(
        rome.requested("milan"),
        json!({"shop": "shop-rome"}),
        "its pods are still ending"
    );

    rome.edit::<VirtualNode>(&key("milan", "milan"), |node| {
        node["metadata"]["finalizers"] = json!([]);
    });
    assert_eq!(
        rome.object::<NamespaceMap>(&key("milan", "milan")),
        Value::Null
    );
    assert_eq!(rome.requested("naples"), json!({"shop": "shop-rome"}));
    assert_eq!(rome.conditions("shop", "milan"), [""; 0]);
}

#[test]
fn invalid_names_and_selectors_are_reported() {
    let mut rome = rome(11);
    rome.offload(
        "shop",
        &json!({"namespaceMappingStrategy": "SelectedName", "remoteNamespaceName": "A_b"}),
    );
    assert_eq!(rome.status("shop")["offloadingPhase"], "AllFailed");
    assert_eq!(rome.requested("milan"), Value::Null);
    let events = rome.events();
    assert!(
        events
            .iter()
            .any(|it| it.starts_with("InvalidRemoteNamespaceName: the remote name `A_b`")),
        "{events:?}"
    );

    rome.offload(
        "books",
        &json!({"clusterSelector": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "region", "operator": "Is", "values": ["x"]}]},
        ]}}),
    );
    assert_eq!(rome.status("books")["offloadingPhase"], "NoClusterSelected");
    let events = rome.events();
    assert!(
        events.iter().any(|it| it.starts_with("InvalidClusterSelector: spec.clusterSelector: operator `Is`")),
        "{events:?}"
    );
}

#[test]
fn virtual_kubelets_have_rights_in_namespaces_that_are_offloaded_to_their_provider() {
    let mut rome = rome(12);
    rome.put_node("naples", "naples-gpu", &json!({"region": "south"}));
    rome.offload("shop", &south());
    let binding = Key::new("shop", "liqo-virtual-kubelet-local-namespace");
    let subjects = rome.object::<RoleBinding>(&binding)["subjects"].clone();
    assert_eq!(
        subjects,
        json!([
            {"kind": "ServiceAccount", "name": "naples", "namespace": "liqo-tenant-naples"},
            {"kind": "ServiceAccount", "name": "naples-gpu", "namespace": "liqo-tenant-naples"},
        ])
    );

    let extra = Key::new("shop", "liqo-virtual-kubelet-local-extra");
    assert_eq!(rome.object::<RoleBinding>(&extra)["subjects"], subjects);

    rome.remove::<VirtualNode>(&key("naples", "naples-gpu"));
    let subjects = rome.object::<RoleBinding>(&binding)["subjects"].clone();
    assert_eq!(subjects.as_array().unwrap().len(), 1);

    rome.respond("naples", &accepted("shop-rome"));
    rome.remove::<NamespaceOffloading>(&offloading_key());
    assert!(
        rome.object::<RoleBinding>(&binding).is_object(),
        "they remove what they reflected"
    );
    rome.respond("naples", &json!({}));
    assert_eq!(rome.object::<RoleBinding>(&binding), Value::Null);
    assert_eq!(rome.object::<RoleBinding>(&extra), Value::Null);
    rome.assert_stable();
}

#[test]
fn a_binding_with_another_role_is_replaced() {
    let mut rome = rome(13);
    rome.put_namespace("shop", &json!({}));
    let binding = Key::new("shop", "liqo-virtual-kubelet-local-namespace");
    rome.put::<RoleBinding>(json!({
        "metadata": {"name": binding.name, "namespace": "shop"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        "subjects": [],
    }));
    rome.put_offloading("shop", &json!({}));
    rome.pass();

    let object = rome.object::<RoleBinding>(&binding);
    assert_eq!(
        object["roleRef"]["name"],
        "liqo-virtual-kubelet-local-namespace"
    );
}

#[test]
fn namespaces_are_offloaded_despite_crashes_and_partitions() {
    for seed in 0..20 {
        let mut rome = rome(seed);
        for namespace in ["shop", "books", "music"] {
            rome.put_namespace(namespace, &json!({}));
            rome.put_offloading(namespace, &json!({}));
        }
        rome.pass_with_faults();
        let mapping = json!({"books": "books-rome", "music": "music-rome", "shop": "shop-rome"});
        assert_eq!(rome.requested("milan"), mapping, "seed {seed}");
        assert_eq!(rome.requested("naples"), mapping, "seed {seed}");

        rome.simulation
            .local()
            .remove::<NamespaceOffloading>(&offloading_key());
        rome.simulation
            .local()
            .remove::<Namespace>(&Key::cluster("books"));
        rome.pass_with_faults();
        assert_eq!(
            rome.requested("milan"),
            json!({"music": "music-rome"}),
            "seed {seed}"
        );
        rome.assert_stable();
    }
}
