//! `NamespaceOffloading`: the clusters that a namespace is offloaded to.

use crate::schema;
use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The clusters that a namespace is offloaded to.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "offloading.liqo.io",
    version = "v1beta1",
    kind = "NamespaceOffloading",
    plural = "namespaceoffloadings",
    shortname = "nso",
    shortname = "nsof",
    shortname = "nsoff",
    shortname = "nsoffloading",
    category = "liqo",
    namespaced,
    status = "NamespaceOffloadingStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The clusters that a namespace is offloaded to.",
    printcolumn(
        name = "NamespaceMappingStrategy",
        type_ = "string",
        json_path = ".spec.namespaceMappingStrategy"
    ),
    printcolumn(
        name = "PodOffloadingStrategy",
        type_ = "string",
        json_path = ".spec.podOffloadingStrategy"
    ),
    printcolumn(
        name = "OffloadingPhase",
        type_ = "string",
        json_path = ".status.offloadingPhase"
    ),
    printcolumn(
        name = "RemoteNamespaceName",
        type_ = "string",
        json_path = ".status.remoteNamespaceName",
        priority = 10
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceOffloadingSpec {
    /// Virtual nodes of the clusters; all clusters if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub cluster_selector: Option<NodeSelector>,

    /// Names of the remote namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "DefaultName"))]
    pub namespace_mapping_strategy: Option<NamespaceMappingStrategy>,

    /// Clusters that run the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "LocalAndRemote"))]
    pub pod_offloading_strategy: Option<PodOffloadingStrategy>,

    /// Name of the remote namespaces with strategy `SelectedName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_namespace_name: Option<String>,
}

/// Observed state of a [`NamespaceOffloading`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceOffloadingStatus {
    /// Generation of the spec that the status belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// State of the offloading to all selected clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloading_phase: Option<String>,

    /// Name of the remote namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_namespace_name: Option<String>,

    /// Conditions of the remote namespace by cluster ID, one of each type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "remote_namespaces_conditions")]
    pub remote_namespaces_conditions: BTreeMap<String, Vec<RemoteNamespaceCondition>>,
}

/// How remote namespaces are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum NamespaceMappingStrategy {
    /// As the local namespace.
    EnforceSameName,
    /// As the local namespace, followed by the local cluster's ID.
    #[default]
    DefaultName,
    /// `spec.remoteNamespaceName`.
    SelectedName,
}

/// Which clusters run the pods of a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum PodOffloadingStrategy {
    /// This cluster only.
    Local,
    /// The selected remote clusters only.
    Remote,
    /// This cluster and the selected remote clusters.
    #[default]
    LocalAndRemote,
}

/// A condition of a remote namespace.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteNamespaceCondition {
    /// Time of the last change of `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,

    /// Details of the reason in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,

    /// Reason in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,

    /// `True`, `False` or `Unknown`.
    pub status: String,

    /// `OffloadingRequired` or `Ready`.
    #[serde(rename = "type")]
    pub type_: String,
}

/// Returns the schema of lists of conditions by cluster ID, each a map by type.
fn remote_namespaces_conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<RemoteNamespaceCondition>();
    json_schema!({"type": "object", "additionalProperties": {
        "type": "array",
        "items": items,
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    }})
}
