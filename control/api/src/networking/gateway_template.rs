//! `WgGatewayServerTemplate` and `WgGatewayClientTemplate`: what upstream makes gateways from.
//!
//! Here one gateway serves all peers, and templates have no effect. Upstream's `liqoctl` connects
//! only clusters that have them, though.

use crate::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How upstream makes the gateway of a GatewayServer.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "WgGatewayServerTemplate",
    plural = "wggatewayservertemplates",
    shortname = "wggst",
    shortname = "wgst",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "How upstream makes the gateway of a GatewayServer; without effect here."
)]
#[serde(rename_all = "camelCase")]
pub struct WgGatewayServerTemplateSpec {
    /// Group, version and kind of what is made.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::object_kind")]
    pub object_kind: Map<String, Value>,

    /// What it is made from.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::anything")]
    pub template: Map<String, Value>,
}

/// How upstream makes the gateway of a GatewayClient.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "WgGatewayClientTemplate",
    plural = "wggatewayclienttemplates",
    shortname = "wggct",
    shortname = "wgct",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "How upstream makes the gateway of a GatewayClient; without effect here."
)]
#[serde(rename_all = "camelCase")]
pub struct WgGatewayClientTemplateSpec {
    /// Group, version and kind of what is made.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::object_kind")]
    pub object_kind: Map<String, Value>,

    /// What it is made from.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::anything")]
    pub template: Map<String, Value>,
}
