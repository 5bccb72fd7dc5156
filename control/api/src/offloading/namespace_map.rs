//! `NamespaceMap`: the namespaces of a provider that a consumer's namespaces are mapped to.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The namespaces of a provider that a consumer's namespaces are mapped to.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "NamespaceMap",
    plural = "namespacemaps",
    shortname = "nm",
    shortname = "nsmap",
    category = "liqo",
    namespaced,
    status = "NamespaceMapStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The namespaces of a provider that a consumer's namespaces are mapped to.",
    printcolumn(
        name = "Local",
        type_ = "string",
        json_path = r#".metadata.labels.liqo\.io/replication"#
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMapSpec {
    /// Name of the provider's namespace by name of the consumer's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub desired_mapping: BTreeMap<String, String>,
}

/// Observed state of a [`NamespaceMap`], written by the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMapStatus {
    /// State of the provider's namespace by name of the consumer's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub current_mapping: BTreeMap<String, NamespaceMapping>,
}

/// A namespace of the provider.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceMapping {
    /// Phase of the creation; absent before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<MappingPhase>,

    /// Name that the provider gave the namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_namespace: Option<String>,
}

/// Phase of the creation of a provider's namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum MappingPhase {
    /// The namespace exists.
    Accepted,
    /// The creation failed, and is retried.
    CreationLoopBackOff,
    /// The namespace is being deleted.
    Terminating,
}
