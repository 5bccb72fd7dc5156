//! Liqo's custom resources, with all fields of upstream's, and those that this project adds.
//!
//! There is one module for each API group, and in it one for each kind. The kinds are also re-exported
//! here, where no two have the same name.

#![forbid(unsafe_code)]
#![expect(
    clippy::duplicated_attributes,
    reason = "each printer column of a kind has a type"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use self::core::{ForeignCluster, ForeignClusterSpec, ForeignClusterStatus};
pub use authentication::{
    Identity, IdentitySpec, IdentityStatus, Renew, RenewSpec, RenewStatus, ResourceSlice,
    ResourceSliceSpec, ResourceSliceStatus, Tenant, TenantPolicy, TenantPolicySpec, TenantSpec,
    TenantStatus,
};
pub use ipam::{IP, IPSpec, IPStatus, Network, NetworkSpec, NetworkStatus};
pub use multicluster::{
    ServiceExport, ServiceExportSpec, ServiceExportStatus, ServiceImport, ServiceImportSpec,
    ServiceImportStatus,
};
pub use networking::{
    Configuration, ConfigurationSpec, ConfigurationStatus, Connection, ConnectionSpec,
    ConnectionStatus, ExportedService, ExportedServiceSpec, GatewayClient, GatewayClientSpec,
    GatewayClientStatus, GatewayServer, GatewayServerSpec, GatewayServerStatus, PublicKey,
    PublicKeySpec, WgGatewayClientTemplate, WgGatewayClientTemplateSpec, WgGatewayServerTemplate,
    WgGatewayServerTemplateSpec,
};
pub use offloading::{
    NamespaceMap, NamespaceMapSpec, NamespaceMapStatus, NamespaceOffloading,
    NamespaceOffloadingSpec, NamespaceOffloadingStatus, Quota, QuotaSpec, ReflectedResource,
    ShadowEndpointSlice, ShadowEndpointSliceSpec, ShadowPod, ShadowPodSpec, ShadowPodStatus,
    VirtualNode, VirtualNodeSpec, VirtualNodeStatus, VkOptionsTemplate, VkOptionsTemplateSpec,
};

pub mod annotations;
pub mod authentication;
pub mod classes;
pub mod core;
pub mod daemon_set;
pub mod duration;
pub mod ipam;
pub mod labels;
pub mod multicluster;
pub mod networking;
pub mod node_affinity;
pub mod offloading;
pub mod quantity;
pub mod requests;
pub mod root_ca;
pub mod taints;
pub mod tenant_namespace;

pub mod schema;

/// Pattern of cluster IDs.
const CLUSTER_ID: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

/// Returns the definitions of all kinds.
///
/// Their schemas are Liqo's with additions: no field is nullable, and an absent `spec` has no default.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    let mut definitions = vec![
        IP::crd(),
        Network::crd(),
        Configuration::crd(),
        Connection::crd(),
        ExportedService::crd(),
        GatewayClient::crd(),
        GatewayServer::crd(),
        PublicKey::crd(),
        WgGatewayClientTemplate::crd(),
        WgGatewayServerTemplate::crd(),
        ForeignCluster::crd(),
        Tenant::crd(),
        schema::with_name(TenantPolicy::crd(), CLUSTER_ID),
        Identity::crd(),
        Renew::crd(),
        ResourceSlice::crd(),
        Quota::crd(),
        NamespaceMap::crd(),
        NamespaceOffloading::crd(),
        ShadowPod::crd(),
        ShadowEndpointSlice::crd(),
        VirtualNode::crd(),
        VkOptionsTemplate::crd(),
    ];
    definitions.iter_mut().for_each(schema::normalize);

    definitions
}

#[cfg(test)]
mod tests;
