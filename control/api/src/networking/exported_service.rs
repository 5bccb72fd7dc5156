//! `ExportedService`: a Service that one cluster exports to a peer. An addition to upstream's kinds.

use crate::multicluster::{ServicePort, ServiceType};
use crate::offloading::shadow_endpoint_slice::EndpointSliceTemplate;
use crate::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Largest number of endpoints of an [`ExportedService`], in all its slices.
pub const ENDPOINTS_MAX: usize = 1000;

/// Largest number of its ports, and of its slices.
pub const LIST_MAX: usize = 100;

/// A Service that a cluster exports to a peer by a ServiceExport, in the tenant namespace of the peer.
///
/// The exporting cluster writes it. It is replicated to a provider; a consumer reads it at its provider. Its name is
/// `SERVICE.NAMESPACE.CLUSTER`, with the cluster ID of the exporting cluster.
#[derive(CustomResource, JsonSchema, Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "networking.liqo.io",
    version = "v1beta1",
    kind = "ExportedService",
    plural = "exportedservices",
    shortname = "exs",
    category = "liqo",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    attr = "cfg_attr(all(), serde(default))",
    doc = "A Service that a cluster exports to a peer by a ServiceExport, in the tenant namespace of the peer.",
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.namespace"),
    printcolumn(name = "Service", type_ = "string", json_path = ".spec.name"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ExportedServiceSpec {
    /// Namespace of the Service, in every cluster.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,

    /// Name of the Service.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,

    /// `ClusterSetIP` or `Headless`.
    #[serde(rename = "type")]
    pub type_: ServiceType,

    /// Ports of the Service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub ports: Vec<ServicePort>,

    /// Address families of the Service. Only `IPv4` crosses between clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub ip_families: Vec<String>,

    /// `None` or `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,

    /// Time for which a client has the same endpoint, with the session affinity `ClientIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int32")]
    pub session_affinity_timeout_seconds: Option<i32>,

    /// `Cluster` or `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_traffic_policy: Option<String>,

    /// Preference for endpoints, such as `PreferClose`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_distribution: Option<String>,

    /// Labels of the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_labels: BTreeMap<String, String>,

    /// Annotations of the ServiceImport.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exported_annotations: BTreeMap<String, String>,

    /// When the Service was exported. Of several clusters that export it differently, the one that exported it first decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub exported_at: Option<Time>,

    /// Endpoints of the Service in the exporting cluster, with the addresses that they have there: at most 1,000 in all slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub endpoint_slices: Vec<EndpointSliceTemplate>,
}

impl ExportedService {
    /// Returns the name of the object for a Service that a cluster exports. A tenant namespace may have the exports of both clusters.
    pub fn name_of(namespace: &str, service: &str, cluster: &str) -> String {
        format!("{service}.{namespace}.{cluster}")
    }
}
