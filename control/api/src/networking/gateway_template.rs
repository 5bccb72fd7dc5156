//! `WgGatewayServerTemplate` and `WgGatewayClientTemplate`: templates of upstream's gateways.
//!
//! They have no effect here, because one gateway serves all peers. The definitions exist because upstream's
//! `liqoctl` requires them.

use crate::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Template of upstream's gateway of a GatewayServer.
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
    doc = "Template of upstream's gateway of a GatewayServer; without effect here."
)]
#[serde(rename_all = "camelCase")]
pub struct WgGatewayServerTemplateSpec {
    /// API version and kind of the created object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::object_kind")]
    pub object_kind: Map<String, Value>,

    /// Template of the created object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::anything")]
    pub template: Map<String, Value>,
}

/// Template of upstream's gateway of a GatewayClient.
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
    doc = "Template of upstream's gateway of a GatewayClient; without effect here."
)]
#[serde(rename_all = "camelCase")]
pub struct WgGatewayClientTemplateSpec {
    /// API version and kind of the created object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::object_kind")]
    pub object_kind: Map<String, Value>,

    /// Template of the created object.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::anything")]
    pub template: Map<String, Value>,
}
