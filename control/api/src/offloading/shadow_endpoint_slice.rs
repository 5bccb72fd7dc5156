//! `ShadowEndpointSlice`: an EndpointSlice that a consumer requests of a provider.

use crate::schema;
use k8s_openapi::api::discovery::v1::Endpoint;
use k8s_openapi::api::discovery::v1::EndpointPort;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An EndpointSlice that a consumer requests of a provider.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "ShadowEndpointSlice",
    plural = "shadowendpointslices",
    shortname = "shes",
    shortname = "sheps",
    shortname = "seps",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "An EndpointSlice that a consumer requests of a provider."
)]
#[serde(rename_all = "camelCase")]
pub struct ShadowEndpointSliceSpec {
    /// Content of the EndpointSlice that the provider creates in the mapped namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<EndpointSliceTemplate>,
}

/// Content of an EndpointSlice.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSliceTemplate {
    /// `IPv4`, `IPv6` or `FQDN`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_type: Option<String>,

    /// Addresses with their conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::endpoints")]
    pub endpoints: Vec<Endpoint>,

    /// Ports of each address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::endpoint_ports")]
    pub ports: Vec<EndpointPort>,
}
