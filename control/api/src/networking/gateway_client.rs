//! `GatewayClient`: this cluster calls a peer's gateway.

use crate::networking::endpoint::{Endpoint, InternalEndpoint};
use crate::schema;
use k8s_openapi::api::core::v1::{LocalObjectReference, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The client side of a tunnel.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "GatewayClient",
    plural = "gatewayclients",
    shortname = "gwc",
    shortname = "gwclient",
    category = "liqo",
    namespaced,
    status = "GatewayClientStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The client side of a tunnel: this cluster calls a peer's gateway.",
    printcolumn(
        name = "Template Kind",
        type_ = "string",
        json_path = ".spec.clientTemplateRef.kind",
        priority = 1
    ),
    printcolumn(
        name = "Template Name",
        type_ = "string",
        json_path = ".spec.clientTemplateRef.name"
    ),
    printcolumn(
        name = "Template Namespace",
        type_ = "string",
        json_path = ".spec.clientTemplateRef.namespace",
        priority = 1
    ),
    printcolumn(
        name = "IP",
        type_ = "string",
        json_path = ".spec.endpoint.addresses[*]"
    ),
    printcolumn(name = "Port", type_ = "string", json_path = ".spec.endpoint.port"),
    printcolumn(
        name = "Protocol",
        type_ = "string",
        json_path = ".spec.endpoint.protocol",
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
pub struct GatewayClientSpec {
    /// How the gateway is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub client_template_ref: Option<ObjectReference>,

    /// Where the peer's gateway is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,

    /// Largest inner packet, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub mtu: Option<i64>,

    /// The Secret that holds the gateway's keys; one is made if it names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// What was found for a [`GatewayClient`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClientStatus {
    /// What keeps the gateway from serving its peer, and the cure; this project's addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// What was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub client_ref: Option<ObjectReference>,

    /// Where this cluster's nodes reach the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_endpoint: Option<InternalEndpoint>,

    /// The Secret that holds the gateway's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub secret_ref: Option<ObjectReference>,
}
