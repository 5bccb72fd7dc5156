//! API group `multicluster.x-k8s.io` of the Multi-Cluster Services API (KEP-1645), version 0.5.
//!
//! Its definitions are not generated: the chart contains those of the project sigs.k8s.io/mcs-api.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use service_export::{ServiceExport, ServiceExportSpec, ServiceExportStatus};
pub use service_import::{
    ClusterStatus, ServiceImport, ServiceImportSpec, ServiceImportStatus, SessionAffinityConfig,
};

pub mod service_export;
pub mod service_import;

/// On an EndpointSlice of an imported Service. Value: name of the ServiceImport.
pub const LABEL_SERVICE_NAME: &str = "multicluster.kubernetes.io/service-name";

/// On an EndpointSlice of an imported Service. Value: the cluster that has the endpoints.
pub const LABEL_SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";

/// Type of an imported Service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
pub enum ServiceType {
    /// The Service has an address in each importing cluster.
    #[default]
    ClusterSetIP,
    /// Clients connect to the addresses of the endpoints.
    Headless,
}

/// Port of an imported Service.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Name, which the ports of EndpointSlices have, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::string")]
    pub name: Option<String>,

    /// `TCP`, `UDP` or `SCTP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::string")]
    pub protocol: Option<String>,

    /// Protocol of the application, in the syntax of a label's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::string")]
    pub app_protocol: Option<String>,

    /// Number of the port.
    #[schemars(schema_with = "crate::schema::int32")]
    pub port: i32,
}
