//! `ServiceImport`: a Service that at least one cluster exports.

use super::{ServicePort, ServiceType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Service that at least one cluster exports.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1beta1",
    kind = "ServiceImport",
    plural = "serviceimports",
    namespaced,
    status = "ServiceImportStatus",
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A Service that at least one cluster exports."
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    /// Ports of the Service in all clusters.
    #[serde(default)]
    pub ports: Vec<ServicePort>,

    /// Addresses of the Service in this cluster, of the type `ClusterSetIP`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<String>,

    /// Type of the Service.
    #[serde(rename = "type", default)]
    pub type_: ServiceType,

    /// `None` or `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,

    /// Details of the session affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity_config: Option<SessionAffinityConfig>,

    /// Address families of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<String>,

    /// `Cluster` or `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,

    /// Preference for endpoints, such as `PreferClose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,
}

/// Details of a session affinity.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionAffinityConfig {
    /// Details of `ClientIP`.
    #[serde(rename = "clientIP", default, skip_serializing_if = "Option::is_none")]
    pub client_ip: Option<ClientIpConfig>,
}

/// Details of the session affinity `ClientIP`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientIpConfig {
    /// Time for which a client has the same endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i32>,
}

impl SessionAffinityConfig {
    /// Returns the details of a session affinity that ends after this time.
    pub fn timeout(seconds: i32) -> Self {
        Self {
            client_ip: Some(ClientIpConfig {
                timeout_seconds: Some(seconds),
            }),
        }
    }
}

/// Observed state of a [`ServiceImport`].
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportStatus {
    /// The clusters that export the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterStatus>,

    /// Conditions, of the type [`READY`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A cluster that exports the Service.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClusterStatus {
    /// Cluster ID.
    pub cluster: String,
}

/// Type of the condition that the Service can be used. Its reason is of the same name, or [`PENDING`].
pub const READY: &str = "Ready";

/// Reason of [`READY`]: the Service has no address yet.
pub const PENDING: &str = "Pending";
