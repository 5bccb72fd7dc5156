//! GatewayClient: the gateway that sends the first packet to a peer's GatewayServer.

use super::gateway::{DEFAULT_MTU, Template, TemplateFlags};
use crate::manifest;
use crate::verbs::create::{Build, Common, Namespaces};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Verb};
use clap::{Args, ValueEnum};
use control_api::GatewayClient;
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create>(
        Verb::Create,
        "Creates a GatewayClient: this cluster connects to the gateway of a peer.",
        "liqoctl create gatewayclient milan -n liqo-tenant-milan --remote-cluster-id milan --addresses 172.18.2.3 --port 31110",
    ),
    Action::new::<Get<GatewayClient>>(
        Verb::Get,
        "Lists GatewayClients.",
        "liqoctl get gatewayclient -n liqo-tenant-milan",
    ),
    Action::new::<Delete<GatewayClient>>(
        Verb::Delete,
        "Deletes a GatewayClient.",
        "liqoctl delete gatewayclient milan -n liqo-tenant-milan",
    ),
];

/// The endpoint of a peer's GatewayServer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// IP addresses or host names.
    pub(crate) addresses: Vec<String>,
    /// Port of all addresses.
    pub(crate) port: i32,
    /// Transport protocol of the port.
    pub(crate) protocol: Protocol,
}

/// A transport protocol.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// UDP.
    #[value(name = "UDP")]
    Udp,
    /// TCP.
    #[value(name = "TCP")]
    Tcp,
}

impl Protocol {
    /// Returns Kubernetes' name of the protocol.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// Returns a GatewayClient that connects to `endpoint`.
pub(crate) fn manifest(
    name: &str,
    namespace: &str,
    peer: &str,
    endpoint: &Endpoint,
    mtu: i64,
    template: &Template,
) -> Value {
    let Endpoint {
        addresses,
        port,
        protocol,
    } = endpoint;
    let spec = json!({
        "clientTemplateRef": template.reference(),
        "endpoint": {"addresses": addresses, "port": port, "protocol": protocol.name()},
        "mtu": mtu,
        "secretRef": {},
    });
    manifest::object("GatewayClient", name, Some(namespace), peer, spec)
}

/// Flags of `liqoctl create gatewayclient`.
#[derive(Args, Debug)]
struct Create {
    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    template: TemplateFlags<GatewayClient>,

    /// The IP addresses or host names of the peer's gateway.
    #[arg(long, required = true, value_delimiter = ',', value_name = "ADDRESS")]
    addresses: Vec<String>,

    /// The MTU of the tunnel, in bytes.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    mtu: i64,

    /// The port of the peer's gateway.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    port: i32,

    /// The protocol of the port.
    #[arg(
        long,
        default_value = "UDP",
        value_name = "PROTOCOL",
        ignore_case = true
    )]
    protocol: Protocol,

    /// Wait until the controller manager has processed the GatewayClient.
    #[arg(long)]
    wait: bool,
}

impl Build for Create {
    type Object = GatewayClient;

    fn common(&self) -> &Common {
        &self.common
    }

    fn manifest(&self, namespaces: Namespaces<'_>) -> Value {
        let endpoint = Endpoint {
            addresses: self.addresses.clone(),
            port: self.port,
            protocol: self.protocol,
        };
        manifest(
            &self.common.name,
            namespaces.object,
            &self.common.remote_cluster_id,
            &endpoint,
            self.mtu,
            &self.template.template(namespaces.liqo),
        )
    }

    fn wait(&self) -> bool {
        self.wait
    }

    fn is_ready(client: &GatewayClient) -> Result<(), String> {
        let status = client.status.clone().unwrap_or_default();
        match status.client_ref.is_some() {
            true => Ok(()),
            false => Err("it has no clientRef yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::gateway::CLIENT_TEMPLATES;

    #[test]
    fn the_manifest_equals_upstreams() {
        let endpoint = Endpoint {
            addresses: vec!["1.2.3.4".to_owned()],
            port: 51840,
            protocol: Protocol::Udp,
        };
        let template = Template {
            resource: CLIENT_TEMPLATES.into(),
            name: "wireguard-client".into(),
            namespace: "liqo".into(),
        };

        let object = manifest("gwc", "default", "milan", &endpoint, DEFAULT_MTU, &template);

        assert_eq!(
            manifest::yaml(object),
            "\
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata:
  labels:
    liqo.io/remote-cluster-id: milan
  name: gwc
  namespace: default
spec:
  clientTemplateRef:
    apiVersion: networking.liqo.io/v1beta1
    kind: WgGatewayClientTemplate
    name: wireguard-client
    namespace: liqo
  endpoint:
    addresses:
    - 1.2.3.4
    port: 51840
    protocol: UDP
  mtu: 1340
  secretRef: {}
status: {}
"
        );
    }
}
