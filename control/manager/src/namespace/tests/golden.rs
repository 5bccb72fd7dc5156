//! Objects as upstream writes them, with the same names (v1.2.0).

use super::{Side, key};
use crate::golden::without_identity;
use control_api::{NamespaceMap, NamespaceOffloading};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::json;

/// Exception: the label for Pod Security, by which the provider protects itself.
#[test]
fn the_namespace_and_its_binding_equal_upstreams() {
    let mut milan = Side::new("milan", 1);
    milan.put_peer("rome");
    milan.put_replica("rome", "milan", &json!({"demo": "demo-rome"}));

    let namespace = without_identity(milan.object::<Namespace>(&Key::cluster("demo-rome")));
    assert_eq!(
        namespace["metadata"],
        json!({
            "annotations": {
                "liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan",
                "liqo.io/original-name": "demo",
            },
            "labels": {
                "liqo.io/remote-cluster-id": "rome",
                "pod-security.kubernetes.io/enforce": "baseline",
            },
            "name": "demo-rome",
        })
    );
    let binding = milan.object::<RoleBinding>(&Key::new("demo-rome", "liqo-tenant-rome"));
    let mut binding = without_identity(binding);
    for field in ["apiVersion", "kind"] {
        binding.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(
        binding,
        json!({
            "metadata": {
                "annotations": {"liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan"},
                "labels": {
                    "app.kubernetes.io/managed-by": "liqo",
                    "liqo.io/managed": "true",
                    "liqo.io/remote-cluster-id": "rome",
                },
                "name": "liqo-tenant-rome",
                "namespace": "demo-rome",
            },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "liqo-virtual-kubelet-remote",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "rome"},
            ],
        })
    );
    let map = milan.object::<NamespaceMap>(&key("rome", "milan"));
    assert_eq!(
        map["status"],
        json!({"currentMapping": {"demo": {"phase": "Accepted", "remoteNamespace": "demo-rome"}}})
    );
}

/// Exceptions: the finalizer of the replication, which another controller adds, and the annotation by which a provider of this
/// project knows that this cluster removes what it has reflected.
#[test]
fn the_namespace_map_and_the_status_equal_upstreams() {
    let mut rome = Side::new("rome", 1);
    rome.put_peer("milan");
    rome.put_node("milan", "milan", &json!({}));
    let spec = json!({
        "clusterSelector": {"nodeSelectorTerms": []},
        "namespaceMappingStrategy": "DefaultName",
        "podOffloadingStrategy": "LocalAndRemote",
    });
    rome.offload("demo", &spec);
    let accepted = json!({"demo": {"phase": "Accepted", "remoteNamespace": "demo-rome"}});
    rome.respond("milan", &accepted);

    let map = without_identity(rome.object::<NamespaceMap>(&key("milan", "milan")));
    assert_eq!(
        map["metadata"],
        json!({
            "annotations": {"liqo.io/removes-reflected-objects": "true"},
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
            "name": "milan",
            "namespace": "liqo-tenant-milan",
        })
    );
    assert_eq!(
        map["spec"],
        json!({"desiredMapping": {"demo": "demo-rome"}})
    );
    let offloading = rome.object::<NamespaceOffloading>(&Key::new("demo", "offloading"));
    assert_eq!(
        offloading["metadata"]["finalizers"],
        json!(["namespaceoffloading-controller.liqo.io/finalizer"])
    );
    let mut status = offloading["status"].clone();
    for condition in status["remoteNamespacesConditions"]["milan"]
        .as_array_mut()
        .unwrap()
    {
        let time = condition
            .as_object_mut()
            .unwrap()
            .remove("lastTransitionTime");
        assert!(time.is_some());
    }
    assert_eq!(
        status,
        json!({
            "observedGeneration": 1,
            "offloadingPhase": "Ready",
            "remoteNamespaceName": "demo-rome",
            "remoteNamespacesConditions": {"milan": [
                {
                    "message": "The remote cluster has been selected through the ClusterSelector field",
                    "reason": "ClusterSelected",
                    "status": "True",
                    "type": "OffloadingRequired",
                },
                {
                    "message": "Namespace correctly offloaded to the remote cluster",
                    "reason": "NamespaceCreated",
                    "status": "True",
                    "type": "Ready",
                },
            ]},
        })
    );
}
