//! `Configuration`: the CIDRs of this cluster and a peer, and how the peer's are seen here.

use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type (and reason, when true) of the condition that all CIDRs of the peer have theirs here.
pub const NETWORK_CIDRS_CONFIGURED: &str = "NetworkCIDRsConfigured";
/// Message of that condition when it is true.
pub const NETWORK_CIDRS_CONFIGURED_MESSAGE: &str = "All network CIDRs are configured";

/// Reason of that condition while they are being decided.
pub const WAITING_FOR_NETWORKS: &str = "WaitingForNetworks";

/// The CIDRs of this cluster and a peer.
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
    doc = "The CIDRs of this cluster and a peer, and how the peer's are seen here.",
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

    /// The peer's CIDRs, as the peer itself knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<ClusterConfig>,
}

/// The network parameters of a cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterConfig {
    /// Its CIDRs.
    #[serde(default, skip_serializing_if = "ClusterCidrs::is_empty")]
    pub cidr: ClusterCidrs,
}

/// The CIDRs of a cluster.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterCidrs {
    /// Of single addresses that it makes reachable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub external: Vec<String>,

    /// Of its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub pod: Vec<String>,
}

/// What was found for a [`Configuration`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigurationStatus {
    /// Whether NetworkCIDRsConfigured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,

    /// The peer's CIDRs as seen here, each at the index it has in the spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<ClusterConfig>,
}

impl ClusterCidrs {
    /// Returns whether it holds no CIDR.
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty() && self.external.is_empty()
    }
}
