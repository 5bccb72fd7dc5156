//! `IP`: an address that peers reach under one of this cluster's external CIDR.

use crate::schema;
use k8s_openapi::api::core::v1::{ObjectReference, ServiceSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An address and the one that peers reach it under.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "ipam.liqo.io",
    version = "v1alpha1",
    kind = "IP",
    plural = "ips",
    category = "liqo",
    namespaced,
    status = "IPStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An address that peers reach under one of this cluster's external CIDR.",
    printcolumn(name = "Local IP", type_ = "string", json_path = ".spec.ip"),
    printcolumn(name = "Remapped IP", type_ = "string", json_path = ".status.ip"),
    printcolumn(
        name = "Remapped IP CIDR",
        type_ = "string",
        json_path = ".status.cidr"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct IPSpec {
    /// The address: of a pod, a node, a host outside, or a peer's pod as seen here.
    #[schemars(schema_with = "schema::ipv4")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "IP field is immutable"}]))]
    pub ip: String,

    /// Whether nodes hide the peers' addresses from it; no, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,

    /// The Network that gives the address; the external CIDR, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub network_ref: Option<ObjectReference>,

    /// The Service to make for the address; none, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
}

/// A Service to be made.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTemplate {
    /// Its metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,

    /// Its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::service_spec")]
    pub spec: Option<ServiceSpec>,
}

/// The part of an object's metadata that a template may set.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedMetadata {
    /// Annotations to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Finalizers to set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,

    /// Labels to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Name to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Namespace to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What was found for an [`IP`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IPStatus {
    /// The CIDR that `ip` is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub cidr: Option<String>,

    /// The address that peers reach it under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub ip: Option<String>,
}
