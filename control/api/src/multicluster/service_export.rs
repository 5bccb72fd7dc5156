//! `ServiceExport`: the request to export a Service to the other clusters.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The request to export the Service of the same name to the other clusters.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceExport",
    plural = "serviceexports",
    namespaced,
    status = "ServiceExportStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The request to export the Service of the same name to the other clusters."
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceExportSpec {
    /// Labels of the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_labels: BTreeMap<String, String>,

    /// Annotations of the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_annotations: BTreeMap<String, String>,
}

/// Observed state of a [`ServiceExport`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ServiceExportStatus {
    /// Conditions of the types [`VALID`], [`READY`] and [`CONFLICT`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Type of the condition that the Service exists and can be exported.
pub const VALID: &str = "Valid";
/// Type of the condition that the Service is exported.
pub const READY: &str = "Ready";
/// Type of the condition that clusters export the Service with different properties.
pub const CONFLICT: &str = "Conflict";

/// Reasons of the conditions, except those of conflicts.
pub mod reason {
    /// Reason of [`VALID`](super::VALID): it is.
    pub const VALID: &str = "Valid";
    /// Reason of [`VALID`](super::VALID): there is no Service of this name.
    pub const NO_SERVICE: &str = "NoService";
    /// Reason of [`VALID`](super::VALID): a Service of this type cannot be exported.
    pub const INVALID_SERVICE_TYPE: &str = "InvalidServiceType";
    /// Reason of [`READY`](super::READY): all peers can read the export.
    pub const EXPORTED: &str = "Exported";
    /// Reason of [`READY`](super::READY): the export is being written.
    pub const PENDING: &str = "Pending";
    /// Reason of [`READY`](super::READY): the export has failed.
    pub const FAILED: &str = "Failed";
    /// Reason of [`CONFLICT`](super::CONFLICT): all clusters export the same properties.
    pub const NO_CONFLICTS: &str = "NoConflicts";
}
