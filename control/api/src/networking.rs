//! API group `networking.liqo.io`.

pub use configuration::{Configuration, ConfigurationSpec, ConfigurationStatus};
pub use connection::{Connection, ConnectionSpec, ConnectionStatus};
pub use exported_service::{ExportedService, ExportedServiceSpec};
pub use gateway_client::{GatewayClient, GatewayClientSpec, GatewayClientStatus};
pub use gateway_server::{GatewayServer, GatewayServerSpec, GatewayServerStatus};
pub use gateway_template::{
    WgGatewayClientTemplate, WgGatewayClientTemplateSpec, WgGatewayServerTemplate,
    WgGatewayServerTemplateSpec,
};
pub use public_key::{PublicKey, PublicKeySpec};

pub mod configuration;
pub mod connection;
pub mod endpoint;
pub mod exported_service;
pub mod gateway_client;
pub mod gateway_server;
pub mod gateway_template;
pub mod public_key;
