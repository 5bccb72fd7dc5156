//! `GatewayClient`: the client side of a tunnel.

use crate::networking::endpoint::{Endpoint, InternalEndpoint};
use crate::schema;
use k8s_openapi::api::core::v1::{LocalObjectReference, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The client side of a tunnel: this cluster connects to a peer's gateway.
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
    doc = "The client side of a tunnel: this cluster connects to a peer's gateway.",
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
    /// Template of the gateway for upstream's controllers; without effect here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub client_template_ref: Option<ObjectReference>,

    /// Endpoint of the peer's gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,

    /// MTU of the tunnel, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int")]
    pub mtu: Option<i64>,

    /// Secret with the gateway's keys. If it has no name, a Secret is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::local_reference")]
    pub secret_ref: Option<LocalObjectReference>,
}

/// Observed state of a [`GatewayClient`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClientStatus {
    /// Reasons why the gateway does not serve its peer, with the remedy. An addition of this project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// Object of upstream's that was created from the template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub client_ref: Option<ObjectReference>,

    /// Endpoint of the gateway for this cluster's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_endpoint: Option<InternalEndpoint>,

    /// Secret with the gateway's keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub secret_ref: Option<ObjectReference>,
}
