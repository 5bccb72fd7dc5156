//! `GatewayServer`: the server side of a tunnel.

use crate::networking::endpoint::{Endpoint, InternalEndpoint};
use crate::schema;
use k8s_openapi::api::core::v1::{LocalObjectReference, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The server side of a tunnel: a peer's gateway connects to this cluster.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "GatewayServer",
    plural = "gatewayservers",
    shortname = "gws",
    shortname = "gwserver",
    category = "liqo",
    namespaced,
    status = "GatewayServerStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The server side of a tunnel: a peer's gateway connects to this cluster.",
    printcolumn(
        name = "Template Kind",
        type_ = "string",
        json_path = ".spec.serverTemplateRef.kind",
        priority = 1
    ),
    printcolumn(
        name = "Template Name",
        type_ = "string",
        json_path = ".spec.serverTemplateRef.name"
    ),
    printcolumn(
        name = "Template Namespace",
        type_ = "string",
        json_path = ".spec.serverTemplateRef.namespace",
        priority = 1
    ),
    printcolumn(
        name = "IP",
        type_ = "string",
        json_path = ".status.endpoint.addresses[*]"
    ),
    printcolumn(name = "Port", type_ = "string", json_path = ".status.endpoint.port"),
    printcolumn(
        name = "Protocol",
        type_ = "string",
        json_path = ".status.endpoint.protocol",
        priority = 1
    ),
    printcolumn(name = "MTU", type_ = "integer", json_path = ".spec.mtu", priority = 1),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayServerSpec {
    /// Service of the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ServerEndpoint>,

    /// MTU of the tunnel, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub mtu: Option<i64>,

    /// Secret with the gateway's keys. If it has no name, a Secret is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub secret_ref: Option<LocalObjectReference>,

    /// Template of the gateway for upstream's controllers; without effect here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub server_template_ref: Option<ObjectReference>,

    /// Annotations of the gateway's Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,

    /// Labels of the gateway's Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_labels: BTreeMap<String, String>,
}

/// The Service of a gateway.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "!(has(self.port) && has(self.ports))", "message": "port and ports are mutually exclusive"}, {"rule": "!(has(self.nodePort) && has(self.nodePorts))", "message": "nodePort and nodePorts are mutually exclusive"}, {"rule": "has(self.port) || (has(self.ports) && size(self.ports) > 0)", "message": "at least one of port or ports must be set"}, {"rule": "!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)", "message": "ports must not contain duplicates"}, {"rule": "!(has(self.nodePorts)) || self.nodePorts.all(p, self.nodePorts.filter(q, q == p).size() == 1)", "message": "nodePorts must not contain duplicates"}]))]
pub struct ServerEndpoint {
    /// Address to request from a load balancer.
    #[serde(
        rename = "loadBalancerIP",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub load_balancer_ip: Option<String>,

    /// Port of the nodes, for a Service of type NodePort or LoadBalancer; excludes `nodePorts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub node_port: Option<i32>,

    /// Ports of the nodes, one for each tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_ports: Vec<i32>,

    /// Port of the Service; excludes `ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub port: Option<i32>,

    /// Ports of the Service, one for each tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<i32>,

    /// Type of the Service.
    #[serde(default)]
    pub service_type: ServiceType,
}

/// Type of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// An address within the cluster.
    #[default]
    ClusterIP,
    /// A port of every node.
    NodePort,
    /// A load balancer.
    LoadBalancer,
    /// A DNS alias.
    ExternalName,
}

/// Observed state of a [`GatewayServer`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayServerStatus {
    /// Reasons why the gateway does not serve its peer, with the remedy. An addition of this project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Endpoint of the gateway for peers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,

    /// Endpoint of the gateway for this cluster's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_endpoint: Option<InternalEndpoint>,

    /// Secret with the gateway's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub secret_ref: Option<ObjectReference>,

    /// Object of upstream's that was created from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub server_ref: Option<ObjectReference>,
}
