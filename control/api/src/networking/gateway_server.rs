//! `GatewayServer`: a peer's gateway calls this cluster.

use crate::networking::endpoint::{Endpoint, InternalEndpoint};
use crate::schema;
use k8s_openapi::api::core::v1::{LocalObjectReference, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The server side of a tunnel.
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
    doc = "The server side of a tunnel: a peer's gateway calls this cluster.",
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
    /// Where the gateway listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<ServerEndpoint>,

    /// Largest inner packet, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub mtu: Option<i64>,

    /// The Secret that holds the gateway's keys; one is made if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub secret_ref: Option<LocalObjectReference>,

    /// How the gateway is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub server_template_ref: Option<ObjectReference>,

    /// Annotations for its Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_annotations: BTreeMap<String, String>,

    /// Labels for its Service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_labels: BTreeMap<String, String>,
}

/// Where a server listens.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "!(has(self.port) && has(self.ports))", "message": "port and ports are mutually exclusive"}, {"rule": "!(has(self.nodePort) && has(self.nodePorts))", "message": "nodePort and nodePorts are mutually exclusive"}, {"rule": "has(self.port) || (has(self.ports) && size(self.ports) > 0)", "message": "at least one of port or ports must be set"}, {"rule": "!(has(self.ports)) || self.ports.all(p, self.ports.filter(q, q == p).size() == 1)", "message": "ports must not contain duplicates"}, {"rule": "!(has(self.nodePorts)) || self.nodePorts.all(p, self.nodePorts.filter(q, q == p).size() == 1)", "message": "nodePorts must not contain duplicates"}]))]
pub struct ServerEndpoint {
    /// The address to ask of a load balancer.
    #[serde(
        rename = "loadBalancerIP",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub load_balancer_ip: Option<String>,

    /// The port on the nodes, for a Service of type NodePort; excludes `node_ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub node_port: Option<i32>,

    /// The ports on the nodes, one per tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_ports: Vec<i32>,

    /// The port that the peer is told; excludes `ports`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub port: Option<i32>,

    /// The ports that the peer is told, one per tunnel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub ports: Vec<i32>,

    /// How the gateway is made reachable.
    #[serde(default)]
    pub service_type: ServiceType,
}

/// How a Service is made reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// Within its cluster.
    #[default]
    ClusterIP,
    /// At a port of every node.
    NodePort,
    /// At a load balancer.
    LoadBalancer,
    /// By an alias.
    ExternalName,
}

/// What was found for a [`GatewayServer`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayServerStatus {
    /// What keeps the gateway from serving its peer, and the cure; this project's addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Where peers reach the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,

    /// Where this cluster's nodes reach the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_endpoint: Option<InternalEndpoint>,

    /// The Secret that holds the gateway's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub secret_ref: Option<ObjectReference>,

    /// What was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub server_ref: Option<ObjectReference>,
}
