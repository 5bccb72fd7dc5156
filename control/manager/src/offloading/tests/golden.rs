//! Objects of upstream v1.2 from two peered clusters, `milan` the provider and `rome` the consumer.

use serde_json::{Value, json};

/// A status that both clusters have.
fn status() -> Value {
    let accepted = |type_: &str, subject: &str| {
        json!({
            "lastTransitionTime": "2026-11-21T07:15:27Z",
            "message": format!("ResourceSlice {} accepted", subject.to_lowercase()),
            "reason": format!("ResourceSlice{subject}Accepted"),
            "status": "Accepted",
            "type": type_,
        })
    };
    json!({
        "authParams": {"apiServer": "https://172.18.2.2:6443"},
        "conditions": [
            accepted("Authentication", "Authentication"),
            accepted("Resources", "Resources"),
        ],
        "nodeLabels": {"provider": "AWS", "region": "B"},
        "resources": {"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"},
        "storageClasses": [
            {"storageClassName": "liqo"},
            {"default": true, "storageClassName": "standard"},
        ],
    })
}

fn spec() -> Value {
    json!({
        "class": "default",
        "consumerClusterID": "rome",
        "providerClusterID": "milan",
        "resources": {"cpu": "20", "memory": "20Gi", "pods": "200"},
    })
}

/// The ResourceSlice of `rome` at `milan`.
pub(super) fn replicated() -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "annotations": {"liqo.io/create-virtual-node": "true"},
            "creationTimestamp": "2026-11-21T07:15:27Z",
            "labels": {
                "liqo.io/originID": "rome",
                "liqo.io/remote-cluster-id": "rome",
                "liqo.io/remoteID": "milan",
                "liqo.io/replicated": "true",
                "liqo.io/replication": "false",
            },
            "name": "milan",
            "namespace": "liqo-tenant-rome",
        },
        "spec": spec(),
        "status": status(),
    })
}

/// The ResourceSlice in `rome`.
pub(super) fn local() -> Value {
    json!({
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "annotations": {"liqo.io/create-virtual-node": "true"},
            "creationTimestamp": "2026-11-21T07:15:27Z",
            "labels": {
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/remoteID": "milan",
                "liqo.io/replication": "true",
            },
            "name": "milan",
            "namespace": "liqo-tenant-milan",
        },
        "spec": spec(),
        "status": status(),
    })
}

fn owner() -> Value {
    json!([{
        "apiVersion": "authentication.liqo.io/v1beta1",
        "blockOwnerDeletion": true,
        "controller": true,
        "kind": "ResourceSlice",
        "name": "milan",
    }])
}

/// The Quota of `rome` at `milan`.
pub(super) fn quota() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "Quota",
        "metadata": {
            "labels": {"liqo.io/managed": "true"},
            "name": "milan-a8a4c692b93b",
            "namespace": "liqo-tenant-rome",
            "ownerReferences": owner(),
        },
        "spec": {
            "limitsEnforcement": "None",
            "resources": {"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"},
            "user": "milan-a8a4c692b93b",
        },
    })
}

/// The VirtualNode of `rome`, without what upstream's webhook takes from the VkOptionsTemplate.
pub(super) fn virtual_node() -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {
            "labels": {
                "liqo.io/managed": "true",
                "liqo.io/remote-cluster-id": "milan",
                "liqo.io/resourceslice-name": "milan",
            },
            "name": "milan",
            "namespace": "liqo-tenant-milan",
            "ownerReferences": owner(),
        },
        "spec": {
            "clusterID": "milan",
            "createNode": true,
            "disableNetworkCheck": false,
            "kubeconfigSecretRef": {"name": "kubeconfig-resourceslice-milan"},
            "labels": {"liqo.io/remote-cluster-id": "milan", "provider": "AWS", "region": "B"},
            "resourceQuota": {
                "hard": {"cpu": "20", "ephemeral-storage": "20Gi", "memory": "20Gi", "pods": "200"},
            },
            "storageClasses": [
                {"storageClassName": "liqo"},
                {"default": true, "storageClassName": "standard"},
            ],
        },
    })
}
