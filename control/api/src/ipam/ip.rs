//! `IP`: an address that peers reach at an address of this cluster's external CIDR.

use crate::schema;
use k8s_openapi::api::core::v1::{ObjectReference, ServiceSpec};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An address that peers reach at an address of this cluster's external CIDR.
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
    doc = "An address that peers reach at an address of this cluster's external CIDR.",
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
    /// IPv4 address of a pod, node, Service or external host, or the remapped address of a peer's pod; immutable.
    #[schemars(schema_with = "schema::ipv4")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "IP field is immutable"}]))]
    pub ip: String,

    /// Whether nodes masquerade packets of peers to the address. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,

    /// Network from which `status.ip` is allocated. Default: the external CIDR.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::reference")]
    pub network_ref: Option<ObjectReference>,

    /// Service to create for `spec.ip`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
}

/// A Service to create.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceTemplate {
    /// Labels and annotations of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<EmbeddedMetadata>,

    /// Ports and type of the Service. A selector has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::service_spec")]
    pub spec: Option<ServiceSpec>,
}

/// The part of an object's metadata that a template may set.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedMetadata {
    /// Annotations of the created object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,

    /// Finalizers of the created object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,

    /// Labels of the created object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// Name of the created object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Namespace of the created object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Observed state of an [`IP`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IPStatus {
    /// CIDR from which `ip` is allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::cidr")]
    pub cidr: Option<String>,

    /// Allocated IPv4 address, at which peers reach `spec.ip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::ipv4")]
    pub ip: Option<String>,
}
