//! Flags of `liqoctl create`.

use crate::forge::{DEFAULT_MTU, DEFAULT_PORT};
use crate::network::{CLIENT_TEMPLATES, SERVER_TEMPLATES, ServiceType};
use crate::output::Format;
use crate::parse;
use clap::{Args, Subcommand, ValueEnum};
use ipnet::Ipv4Net;

/// What to create.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Creates a Configuration: the CIDRs of a peer.
    ///
    /// Example: liqoctl create configuration milan -n liqo-tenant-milan --remote-cluster-id milan --pod-cidr 10.244.0.0/16 --external-cidr 10.70.0.0/16
    Configuration(Configuration),
    /// Creates a GatewayServer: a peer's gateway calls this cluster.
    ///
    /// Example: liqoctl create gatewayserver rome -n liqo-tenant-rome --remote-cluster-id rome --service-type NodePort
    Gatewayserver(GatewayServer),
    /// Creates a GatewayClient: this cluster calls a peer's gateway.
    ///
    /// Example: liqoctl create gatewayclient milan -n liqo-tenant-milan --remote-cluster-id milan --addresses 172.18.2.3 --port 31110
    Gatewayclient(GatewayClient),
    /// Creates a PublicKey: the key of a peer's gateway.
    ///
    /// Example: liqoctl create publickey milan -n liqo-tenant-milan --remote-cluster-id milan --public-key KEY
    Publickey(PublicKey),
}

/// Flags of all of them.
#[derive(Args, Debug)]
pub(crate) struct Common {
    /// The object's name.
    pub(crate) name: String,

    /// The id of the peer.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    pub(crate) remote_cluster_id: String,

    /// Print the object as json or yaml instead of creating it.
    #[arg(long, short, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}

/// The template that upstream's controllers make a server from; ours ignore it.
#[derive(Args, Debug)]
pub(crate) struct ServerTemplate {
    /// The resource of the template, for a cluster with upstream's Liqo.
    #[arg(long = "type", default_value = SERVER_TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    pub(crate) type_: String,

    /// The name of that template.
    #[arg(long, default_value = "wireguard-server", value_name = "NAME")]
    pub(crate) template_name: String,

    /// The namespace of that template. Without this, Liqo's.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) template_namespace: Option<String>,
}

/// The template that upstream's controllers make a client from; ours ignore it.
#[derive(Args, Debug)]
pub(crate) struct ClientTemplate {
    /// The resource of the template, for a cluster with upstream's Liqo.
    #[arg(long = "type", default_value = CLIENT_TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    pub(crate) type_: String,

    /// The name of that template.
    #[arg(long, default_value = "wireguard-client", value_name = "NAME")]
    pub(crate) template_name: String,

    /// The namespace of that template. Without this, Liqo's.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) template_namespace: Option<String>,
}

/// Flags of a Configuration.
#[derive(Args, Debug)]
pub(crate) struct Configuration {
    #[command(flatten)]
    pub(crate) common: Common,

    /// The CIDRs of the peer's pods.
    #[arg(long, required = true, value_delimiter = ',', value_name = "CIDR", value_parser = parse::cidr)]
    pub(crate) pod_cidr: Vec<Ipv4Net>,

    /// The peer's external CIDR.
    #[arg(long, required = true, value_delimiter = ',', value_name = "CIDR", value_parser = parse::cidr)]
    pub(crate) external_cidr: Vec<Ipv4Net>,

    /// Wait until it is applied.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Flags of a GatewayServer.
#[derive(Args, Debug)]
pub(crate) struct GatewayServer {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) template: ServerTemplate,

    /// The address to ask of a load balancer.
    #[arg(long, value_name = "IP")]
    pub(crate) load_balancer_ip: Option<String>,

    /// Largest inner packet, in bytes.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    pub(crate) mtu: i64,

    /// The port of the nodes for a Service of type NodePort.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) node_port: Option<i32>,

    /// The port of its Service.
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) port: i32,

    /// How it is made reachable.
    #[arg(
        long,
        default_value = "LoadBalancer",
        value_name = "TYPE",
        ignore_case = true
    )]
    pub(crate) service_type: ServiceType,

    /// Wait until it has an endpoint.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Flags of a GatewayClient.
#[derive(Args, Debug)]
pub(crate) struct GatewayClient {
    #[command(flatten)]
    pub(crate) common: Common,

    #[command(flatten)]
    pub(crate) template: ClientTemplate,

    /// Where the peer's gateway is reached.
    #[arg(long, required = true, value_delimiter = ',', value_name = "ADDRESS")]
    pub(crate) addresses: Vec<String>,

    /// Largest inner packet, in bytes.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    pub(crate) mtu: i64,

    /// The port of the peer's gateway.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) port: i32,

    /// The protocol of that port.
    #[arg(
        long,
        default_value = "UDP",
        value_name = "PROTOCOL",
        ignore_case = true
    )]
    pub(crate) protocol: Protocol,

    /// Wait until it is taken up.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Flags of a PublicKey.
#[derive(Args, Debug)]
pub(crate) struct PublicKey {
    #[command(flatten)]
    pub(crate) common: Common,

    /// The key, as base64.
    #[arg(long, value_name = "BASE64", value_parser = key)]
    pub(crate) public_key: Key,
}

/// A WireGuard key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(pub(crate) Vec<u8>);

/// A transport protocol.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// As UDP.
    #[value(name = "UDP")]
    Udp,
    /// As TCP.
    #[value(name = "TCP")]
    Tcp,
}

impl Protocol {
    /// Returns Kubernetes' word.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

fn key(text: &str) -> Result<Key, String> {
    parse::key(text).map(Key)
}
