//! Liqo's custom resources, field for field.
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
pub use ipam::{IP, IPSpec, IPStatus, Network, NetworkSpec, NetworkStatus};
pub use networking::{
    Configuration, ConfigurationSpec, ConfigurationStatus, Connection, ConnectionSpec,
    ConnectionStatus, GatewayClient, GatewayClientSpec, GatewayClientStatus, GatewayServer,
    GatewayServerSpec, GatewayServerStatus, PublicKey, PublicKeySpec, WgGatewayClientTemplate,
    WgGatewayClientTemplateSpec, WgGatewayServerTemplate, WgGatewayServerTemplateSpec,
};

pub mod annotations;
pub mod core;
pub mod ipam;
pub mod labels;
pub mod networking;
pub mod tenant_namespace;

mod schema;

/// Returns the definitions of all kinds.
pub fn custom_resource_definitions() -> Vec<CustomResourceDefinition> {
    vec![
        IP::crd(),
        Network::crd(),
        Configuration::crd(),
        Connection::crd(),
        GatewayClient::crd(),
        GatewayServer::crd(),
        PublicKey::crd(),
        WgGatewayClientTemplate::crd(),
        WgGatewayServerTemplate::crd(),
        ForeignCluster::crd(),
    ]
}

#[cfg(test)]
mod tests;
