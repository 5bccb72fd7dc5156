//! GatewayClient: the gateway that sends the first packet to a peer's GatewayServer.

use super::gateway::{CLIENT_TEMPLATES, Create, Gateway};
use crate::verbs::delete::Delete;
use crate::verbs::get::Get;
use crate::verbs::{Action, Verb};
use clap::{Args, ValueEnum};
use control_api::GatewayClient;
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

pub(crate) const ACTIONS: &[Action] = &[
    Action::new::<Create<GatewayClient>>(
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
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// The IP addresses or host names of the peer's gateway.
    #[arg(long, required = true, value_delimiter = ',', value_name = "ADDRESS")]
    pub(crate) addresses: Vec<String>,

    /// The port of the peer's gateway.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) port: i32,

    /// The protocol of the port.
    #[arg(
        long,
        default_value = "UDP",
        value_name = "PROTOCOL",
        ignore_case = true
    )]
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

impl Gateway for GatewayClient {
    const ROLE: &str = "client";
    const TEMPLATES: &str = CLIENT_TEMPLATES;
    const TEMPLATE_NAME: &str = "wireguard-client";
    const TEMPLATE_FIELD: &str = "clientTemplateRef";

    type Endpoint = Endpoint;

    fn endpoint(endpoint: &Endpoint) -> Value {
        let Endpoint {
            addresses,
            port,
            protocol,
        } = endpoint;
        json!({"addresses": addresses, "port": port, "protocol": protocol.name()})
    }

    fn secret(&self) -> Option<&ObjectReference> {
        self.status.as_ref()?.secret_ref.as_ref()
    }

    fn is_ready(&self) -> Result<(), String> {
        let client = self.status.as_ref().and_then(|it| it.client_ref.as_ref());
        match client {
            Some(_) => Ok(()),
            None => Err("it has no clientRef yet".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::gateway::{DEFAULT_MTU, Spec, Template, manifest};
    use crate::manifest::yaml;

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
        let spec = Spec::<GatewayClient> {
            endpoint,
            mtu: DEFAULT_MTU,
            template,
        };

        let object = manifest("gwc", "default", "milan", &spec);

        assert_eq!(
            yaml(object),
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
