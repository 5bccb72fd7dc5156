//! The objects that are written, as upstream writes them.
//!
//! They are JSON because they are applied: a field that is not here keeps its value.

use control_api::labels;
use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

const NETWORKING: &str = "networking.liqo.io/v1beta1";

/// Largest inner packet that every way over 1,500-byte links carries, in bytes.
pub(crate) const DEFAULT_MTU: i64 = 1340;
/// Port that peers are told if nobody says otherwise.
pub(crate) const DEFAULT_PORT: i32 = 51840;

/// A template that upstream's controllers make a gateway from; ours ignore it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    /// Group, version and plural, as `networking.liqo.io/v1beta1/wggatewayservertemplates`.
    pub(crate) resource: String,
    /// Its name.
    pub(crate) name: String,
    /// Its namespace.
    pub(crate) namespace: String,
}

/// How a gateway is made reachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerEndpoint {
    /// `LoadBalancer`, `NodePort` or `ClusterIP`.
    pub(crate) service_type: String,
    /// The port that the peer is told.
    pub(crate) port: i32,
    /// The port on nodes.
    pub(crate) node_port: Option<i32>,
    /// The address to ask of a load balancer.
    pub(crate) load_balancer_ip: Option<String>,
}

/// Who an object belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `GatewayServer` or `GatewayClient`.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// Its UID.
    pub(crate) uid: String,
}

/// Returns a Configuration: the CIDRs of `peer` as it knows them itself.
pub(crate) fn configuration(
    name: &str,
    namespace: Option<&str>,
    peer: &str,
    pod: &[String],
    external: &[String],
) -> Value {
    let spec = json!({"remote": {"cidr": {"pod": pod, "external": external}}});
    object("Configuration", name, namespace, peer, spec)
}

/// Returns a GatewayServer.
pub(crate) fn gateway_server(
    name: &str,
    namespace: &str,
    peer: &str,
    endpoint: &ServerEndpoint,
    mtu: i64,
    template: &Template,
) -> Value {
    let mut listens = json!({"port": endpoint.port, "serviceType": endpoint.service_type});
    if let Some(port) = endpoint.node_port {
        listens["nodePort"] = port.into();
    }
    if let Some(ip) = &endpoint.load_balancer_ip {
        listens["loadBalancerIP"] = ip.as_str().into();
    }
    let spec = json!({
        "endpoint": listens,
        "mtu": mtu,
        "secretRef": {},
        "serverTemplateRef": reference(template),
    });
    object("GatewayServer", name, Some(namespace), peer, spec)
}

/// Returns a GatewayClient that calls `addresses`.
pub(crate) fn gateway_client(
    name: &str,
    namespace: &str,
    peer: &str,
    endpoint: (&[String], i32, &str),
    mtu: i64,
    template: &Template,
) -> Value {
    let (addresses, port, protocol) = endpoint;
    let spec = json!({
        "clientTemplateRef": reference(template),
        "endpoint": {"addresses": addresses, "port": port, "protocol": protocol},
        "mtu": mtu,
        "secretRef": {},
    });
    object("GatewayClient", name, Some(namespace), peer, spec)
}

/// Returns the PublicKey of `peer`.
pub(crate) fn public_key(
    name: &str,
    namespace: Option<&str>,
    peer: &str,
    key: &[u8],
    owner: Option<&Owner>,
) -> Value {
    let bytes = k8s_openapi::ByteString(key.to_vec());
    let spec = json!({"publicKey": bytes});
    let mut forged = object("PublicKey", name, namespace, peer, spec);
    forged["metadata"]["labels"][labels::GATEWAY_RESOURCE] = "true".into();
    if let Some(owner) = owner {
        forged["metadata"]["ownerReferences"] = json!([{
            "apiVersion": NETWORKING,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
        }]);
    }
    forged
}

/// Returns the namespace for all about `peer`.
pub(crate) fn tenant_namespace(peer: &str) -> Value {
    const PRIVILEGED: &str = "privileged";
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": format!("{}{peer}", crate::tenant::PREFIX),
            "labels": {
                labels::REMOTE_CLUSTER_ID: peer,
                labels::TENANT_NAMESPACE: "true",
                "pod-security.kubernetes.io/audit": PRIVILEGED,
                "pod-security.kubernetes.io/enforce": PRIVILEGED,
                "pod-security.kubernetes.io/warn": PRIVILEGED,
            },
        },
    })
}

/// Adds labels and annotations that a person wants on everything; the object's own win.
pub(crate) fn add_metadata(
    object: &mut Value,
    extra_labels: &[(String, String)],
    extra_annotations: &[(String, String)],
) {
    for (field, extra) in [("labels", extra_labels), ("annotations", extra_annotations)] {
        if extra.is_empty() {
            continue;
        }
        let metadata = object["metadata"].as_object_mut();
        let own = metadata.map(|all| all.entry(field).or_insert_with(|| Map::new().into()));
        let Some(own) = own.and_then(Value::as_object_mut) else {
            continue;
        };
        for (key, value) in extra {
            own.entry(key.as_str())
                .or_insert_with(|| value.as_str().into());
        }
    }
}

/// Returns the object as upstream prints it: with the status that it has not yet.
pub(crate) fn printed(mut object: Value) -> Value {
    if object["kind"] != "PublicKey" && object["kind"] != "Namespace" {
        object["status"] = json!({});
    }
    object
}

/// Returns the kind that a plural of upstream's templates stands for.
fn template_kind(plural: &str) -> String {
    match plural {
        "wggatewayservertemplates" => "WgGatewayServerTemplate".to_owned(),
        "wggatewayclienttemplates" => "WgGatewayClientTemplate".to_owned(),
        // A kind of somebody's own: the manager ignores the reference anyway.
        other => other.to_owned(),
    }
}

fn reference(template: &Template) -> Value {
    let (version, plural) = template
        .resource
        .rsplit_once('/')
        .unwrap_or((NETWORKING, &template.resource));
    json!({
        "apiVersion": version,
        "kind": template_kind(plural),
        "name": template.name,
        "namespace": template.namespace,
    })
}

fn object(kind: &str, name: &str, namespace: Option<&str>, peer: &str, spec: Value) -> Value {
    let mut metadata = json!({"name": name, "labels": {labels::REMOTE_CLUSTER_ID: peer}});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": NETWORKING, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Returns CIDRs as objects hold them.
pub(crate) fn texts(cidrs: &[Ipv4Net]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
