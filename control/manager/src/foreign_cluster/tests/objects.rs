//! Objects of the peer `milan`, and of the cluster itself.

use super::*;

pub(super) fn of_peer(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": TENANT,
            "labels": {"liqo.io/remote-cluster-id": "milan"},
        },
        "spec": spec,
    })
}

/// Sets a part of an object.
pub(super) fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

pub(super) fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = json!(namespace);
    object
}

pub(super) fn namespace() -> Value {
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
    json!({"kind": "Namespace", "metadata": {"name": TENANT, "labels": labels}})
}

/// The rights of the manager in the tenant namespace.
pub(super) fn role_binding() -> Value {
    let role = "liqo-controller-manager-tenant";
    json!({
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": TENANT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "liqo-controller-manager", "namespace": "liqo"}],
    })
}

pub(super) fn config_map(id: &str) -> Value {
    json!({
        "kind": "ConfigMap",
        "metadata": {"name": "id", "namespace": "liqo", "labels": {"app.kubernetes.io/name": "clusterid-configmap"}},
        "data": {"CLUSTER_ID": id},
    })
}

pub(super) fn gateway_pod(name: &str, is_ready: bool) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "liqo", "labels": {"networking.liqo.io/component": "gateway"}},
        "spec": {"containers": []},
        "status": {"podIP": "10.244.1.9", "conditions": [ready(is_ready)]},
    })
}

pub(super) fn configuration() -> Value {
    of_peer("Configuration", "milan", &json!({}))
}

pub(super) fn server() -> Value {
    of_peer("GatewayServer", "milan", &json!({}))
}

pub(super) fn client() -> Value {
    of_peer("GatewayClient", "milan", &json!({}))
}

pub(super) fn connection(value: &str) -> Value {
    let connection = of_peer(
        "Connection",
        "gw-milan",
        &json!({"type": "Server", "gatewayRef": {}}),
    );
    with(connection, "status", json!({"value": value}))
}

/// A connection whose path has a fault.
pub(super) fn faulty(value: &str) -> Value {
    let condition = json!({
        "type": "PathHealthy", "status": "False", "reason": "LocalOverlay", "message": "node rome-1: no overlay",
        "lastTransitionTime": "2026-11-22T00:00:00Z",
    });
    let status = json!({"value": value, "conditions": [condition]});
    with(connection(value), "status", status)
}

pub(super) fn tenant() -> Value {
    of_peer("Tenant", "milan", &json!({"clusterID": "milan"}))
}

/// A Tenant whose consumer has its credentials.
pub(super) fn ready_tenant() -> Value {
    let status =
        json!({"tenantNamespace": TENANT, "authParams": {"apiServer": "https://192.0.2.1:6443"}});
    with(tenant(), "status", status)
}

pub(super) fn identity() -> Value {
    let spec = json!({
        "clusterID": "milan",
        "type": "ControlPlane",
        "namespace": "liqo-tenant-rome",
        "authParams": {"apiServer": "https://192.0.2.2:6443", "proxyURL": "http://10.71.0.9:8118"},
    });
    of_peer("Identity", "controlplane-milan", &spec)
}

/// An Identity whose Secret is written.
pub(super) fn ready_identity() -> Value {
    let reference = json!({"kubeconfigSecretRef": {"name": "kubeconfig-controlplane-milan"}});
    with(identity(), "status", reference)
}

/// The Identity of a slice.
pub(super) fn slice_identity() -> Value {
    let spec = json!({"clusterID": "milan", "type": "ResourceSlice"});
    of_peer("Identity", "a-slice", &spec)
}

/// The Secret of the Identity, or of a user who needs no Identity.
pub(super) fn secret() -> Value {
    let labels =
        json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/identity-type": "ControlPlane"});
    let annotations = json!({"liqo.io/remote-tenant-namespace": "liqo-tenant-rome"});
    let metadata = json!({
        "name": "kubeconfig-controlplane-milan",
        "namespace": TENANT,
        "labels": labels,
        "annotations": annotations,
    });
    json!({"kind": "Secret", "metadata": metadata})
}

/// A slice of which the provider, or this cluster for it, has decided.
pub(super) fn slice(status: &str, reason: &str) -> Value {
    let spec = json!({"providerClusterID": "milan", "consumerClusterID": "rome"});
    let condition = json!({"type": "Resources", "status": status, "reason": reason});
    with(
        of_peer("ResourceSlice", "milan", &spec),
        "status",
        json!({"conditions": [condition]}),
    )
}

pub(super) fn virtual_node(name: &str, spec: Value) -> Value {
    let spec = fake_apiserver::merged(json!({"clusterID": "milan"}), spec);
    let mut node = of_peer("VirtualNode", name, &spec);
    node["status"] = json!({"conditions": [{"type": "VirtualKubelet", "status": "Running"}]});
    node
}

/// A pod of a virtual kubelet.
pub(super) fn kubelet(node: &str, is_ready: bool) -> Value {
    let labels = json!({
        "liqo.io/remote-cluster-id": "milan",
        "liqo.io/virtual-node": node,
        "offloading.liqo.io/component": "virtual-kubelet",
    });
    json!({
        "kind": "Pod",
        "metadata": {"name": format!("vk-{node}"), "namespace": TENANT, "labels": labels},
        "spec": {"containers": []},
        "status": {"conditions": [ready(is_ready)]},
    })
}

pub(super) fn node(name: &str, is_ready: bool) -> Value {
    let labels = json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/type": "virtual-node"});
    json!({
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [ready(is_ready)]},
    })
}

pub(super) fn quota() -> Value {
    let metadata = json!({"name": "milan-a8a4c692b93b", "namespace": TENANT});
    json!({"kind": "Quota", "metadata": metadata, "spec": {"user": "milan-a8a4c692b93b", "resources": {}}})
}

pub(super) fn renew() -> Value {
    of_peer("Renew", "controlplane-milan", &json!({}))
}

pub(super) fn namespace_map() -> Value {
    of_peer("NamespaceMap", "milan", &json!({}))
}

pub(super) fn public_key() -> Value {
    of_peer("PublicKey", "milan", &json!({}))
}

fn ready(is_ready: bool) -> Value {
    json!({"type": "Ready", "status": if is_ready { "True" } else { "False" }})
}
