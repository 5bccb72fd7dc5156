//! `Configuration`: the CIDRs of this cluster and a peer, and the CIDRs to which the peer's are remapped.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of the condition that all CIDRs of the peer are remapped. Its reason while it is true.
pub const NETWORK_CIDRS_CONFIGURED: &str = "NetworkCIDRsConfigured";
/// Message of that condition when it is true.
pub const NETWORK_CIDRS_CONFIGURED_MESSAGE: &str = "All network CIDRs are configured";

/// Reason of that condition while Networks have no status.
pub const WAITING_FOR_NETWORKS: &str = "WaitingForNetworks";

/// The CIDRs of this cluster and a peer, and the CIDRs to which the peer's are remapped.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "Configuration",
    plural = "configurations",
    shortname = "conf",
    category = "liqo",
    namespaced,
    status = "ConfigurationStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "The CIDRs of this cluster and a peer, and the CIDRs to which the peer's are remapped.",
    // The space at the end is upstream's.
    printcolumn(name = "Desired Pod CIDR ", type_ = "string", json_path = ".spec.remote.cidr.pod"),
    printcolumn(name = "Remapped Pod CIDR", type_ = "string", json_path = ".status.remote.cidr.pod"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Desired External CIDR",
        type_ = "string",
        json_path = ".spec.remote.cidr.external",
        priority = 1
    ),
    printcolumn(
        name = "Remapped External CIDR",
        type_ = "string",
        json_path = ".status.remote.cidr.external",
        priority = 1
    ),
    printcolumn(
        name = "ClusterID",
        type_ = "string",
        json_path = r".metadata.labels.liqo\.io/remote-cluster-id",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationSpec {
    /// This cluster's CIDRs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<ClusterConfig>,

    /// The peer's CIDRs before remapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<ClusterConfig>,
}

/// The network parameters of a cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// CIDRs of the cluster.
    #[serde(default, skip_serializing_if = "ClusterCidrs::is_empty")]
    pub cidr: ClusterCidrs,
}

/// The CIDRs of a cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCidrs {
    /// CIDR of the addresses that IP objects get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub external: Vec<String>,

    /// CIDRs of the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub pod: Vec<String>,
}

/// Observed state of a [`Configuration`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// The condition `NetworkCIDRsConfigured`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The peer's CIDRs after remapping. Each has the index of its original in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<ClusterConfig>,
}

impl ClusterCidrs {
    /// Returns whether both lists are empty.
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.external.is_empty()
    }
}
