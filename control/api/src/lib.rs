//! The custom resources, and the desired state that a fabric file or an API server gives.
//!
//! The kinds are Liqo's, field for field, one per module. [`fabric`] reads them from a file, fills in
//! the addresses and gives a checked view of them.

#![forbid(unsafe_code)]
#![expect(
    clippy::duplicated_attributes,
    reason = "each printer column of a kind has a type"
)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use configuration::{Configuration, ConfigurationSpec, ConfigurationStatus};
pub use connection::{Connection, ConnectionSpec, ConnectionStatus};
pub use foreign_cluster::{ForeignCluster, ForeignClusterSpec, ForeignClusterStatus};
pub use gateway_client::{GatewayClient, GatewayClientSpec, GatewayClientStatus};
pub use gateway_server::{GatewayServer, GatewayServerSpec, GatewayServerStatus};
pub use gateway_template::{
    WgGatewayClientTemplate, WgGatewayClientTemplateSpec, WgGatewayServerTemplate,
    WgGatewayServerTemplateSpec,
};
pub use ip::{IP, IPSpec, IPStatus};
pub use network::{Network, NetworkSpec, NetworkStatus};
pub use public_key::{PublicKey, PublicKeySpec};

pub mod annotations;
pub mod configuration;
pub mod connection;
pub mod endpoint;
pub mod fabric;
pub mod foreign_cluster;
pub mod gateway_client;
pub mod gateway_server;
pub mod gateway_template;
pub mod ip;
pub mod labels;
pub mod network;
pub mod public_key;
pub mod tenant;

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
