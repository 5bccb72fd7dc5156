//! Flags of `liqoctl network`.

use crate::cluster::RemoteFlags;
use crate::kinds::gateway::{
    CLIENT_TEMPLATES, DEFAULT_MTU, DEFAULT_PORT, SERVER_TEMPLATES, ServiceType, Template,
};
use crate::kinds::gateway_client::Endpoint;
use crate::kinds::gateway_server::ServiceEndpoint;
use crate::pair::Side;
use crate::parse;
use clap::Args;
use std::time::Duration;

/// Name of upstream's template of client gateways.
const CLIENT_TEMPLATE: &str = "wireguard-client";

/// Name of upstream's template of server gateways.
const SERVER_TEMPLATE: &str = "wireguard-server";

/// Default limit of `liqoctl network`.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Flags of `connect`.
#[derive(Args, Debug)]
pub(crate) struct Connect {
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,

    #[command(flatten)]
    pub(crate) tunnel: Tunnel,
}

/// How two networks are connected.
#[derive(Args, Clone, Debug)]
pub(crate) struct Tunnel {
    #[command(flatten)]
    pub(crate) gateways: Gateways,

    #[command(flatten)]
    pub(crate) templates: Templates,

    /// Do not exchange the public keys. The gateways connect after the keys are created by other means.
    #[arg(long)]
    pub(crate) disable_sharing_keys: bool,

    /// Wait until both sides are Connected.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Flags of the gateways.
#[derive(Args, Clone, Debug)]
pub(crate) struct Gateways {
    /// The address to which the client connects. Default: the address in the status of the server.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) gw_client_address: Option<String>,

    /// The port to which the client connects. Default: the port in the status of the server.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) gw_client_port: Option<i32>,

    /// The address to request from a load balancer.
    #[arg(long, value_name = "IP")]
    pub(crate) gw_server_service_loadbalancerip: Option<String>,

    /// The port of the nodes for a Service of type NodePort.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) gw_server_service_nodeport: Option<i32>,

    /// The port of the server's Service.
    #[arg(long, default_value_t = DEFAULT_PORT, value_name = "PORT", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) gw_server_service_port: i32,

    /// The type of the server's Service.
    #[arg(
        long,
        default_value = "LoadBalancer",
        value_name = "TYPE",
        ignore_case = true
    )]
    pub(crate) gw_server_service_type: ServiceType,

    /// The MTU of the tunnel, in bytes: at most the path MTU between the gateways minus 60.
    #[arg(long, default_value_t = DEFAULT_MTU, value_name = "BYTES", value_parser = clap::value_parser!(i64).range(576..=9000))]
    pub(crate) mtu: i64,

    /// Do not check templates and the initial state.
    #[arg(long)]
    pub(crate) skip_validation: bool,
}

/// Flags of the templates of upstream's gateways.
#[derive(Args, Clone, Debug)]
pub(crate) struct Templates {
    /// The template of the client gateway, for a cluster with upstream's Liqo.
    #[arg(long, default_value = CLIENT_TEMPLATE, value_name = "NAME")]
    pub(crate) gw_client_template_name: String,

    /// The namespace of the template. Default: Liqo's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) gw_client_template_namespace: Option<String>,

    /// The resource of the template.
    #[arg(long, default_value = CLIENT_TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    pub(crate) gw_client_type: String,

    /// The template of the server gateway, for a cluster with upstream's Liqo.
    #[arg(long, default_value = SERVER_TEMPLATE, value_name = "NAME")]
    pub(crate) gw_server_template_name: String,

    /// The namespace of the template. Default: Liqo's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub(crate) gw_server_template_namespace: Option<String>,

    /// The resource of the template.
    #[arg(long, default_value = SERVER_TEMPLATES, value_name = "GROUP/VERSION/PLURAL")]
    pub(crate) gw_server_type: String,
}

impl Default for Templates {
    fn default() -> Self {
        Self {
            gw_client_template_name: CLIENT_TEMPLATE.to_owned(),
            gw_client_template_namespace: None,
            gw_client_type: CLIENT_TEMPLATES.to_owned(),
            gw_server_template_name: SERVER_TEMPLATE.to_owned(),
            gw_server_template_namespace: None,
            gw_server_type: SERVER_TEMPLATES.to_owned(),
        }
    }
}

/// Flags of `disconnect` and `reset`.
#[derive(Args, Debug)]
pub(crate) struct Remove {
    #[command(flatten)]
    pub(crate) remote: RemoteFlags,

    /// Do not check that the two clusters are compatible.
    #[arg(long)]
    pub(crate) skip_validation: bool,

    /// Wait until all objects are deleted.
    #[arg(long)]
    pub(crate) wait: bool,

    /// The cluster ID of the remote cluster. With this flag, the objects of the local cluster are removed
    /// even if the remote one is unreachable.
    #[arg(long, value_name = "ID", value_parser = parse::cluster_id)]
    pub(crate) remote_cluster_id: Option<String>,
}

impl Gateways {
    /// Returns the server's Service.
    pub(crate) fn endpoint(&self) -> ServiceEndpoint {
        ServiceEndpoint {
            service_type: self.gw_server_service_type,
            port: self.gw_server_service_port,
            node_port: self.gw_server_service_nodeport,
            load_balancer_ip: self.gw_server_service_loadbalancerip.clone(),
        }
    }

    /// Returns the endpoint for the client: the one in the status of the server, unless flags replace
    /// it.
    pub(crate) fn server_address(&self, reported: &Endpoint) -> Endpoint {
        let address = self.gw_client_address.clone();
        let addresses = address.map(|address| vec![address]);
        Endpoint {
            addresses: addresses.unwrap_or_else(|| reported.addresses.clone()),
            port: self.gw_client_port.unwrap_or(reported.port),
            protocol: reported.protocol,
        }
    }

    /// Checks flags that only some types of Service have.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if two flags contradict each other.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let type_ = self.gw_server_service_type;
        if self.gw_server_service_loadbalancerip.is_some() && type_ != ServiceType::LoadBalancer {
            anyhow::bail!(
                "--gw-server-service-loadbalancerip needs --gw-server-service-type LoadBalancer, not {}",
                type_.name()
            );
        }
        if self.gw_server_service_nodeport.is_some() && type_ == ServiceType::ClusterIp {
            anyhow::bail!(
                "--gw-server-service-nodeport needs --gw-server-service-type NodePort or LoadBalancer, not ClusterIP"
            );
        }
        Ok(())
    }
}

impl Templates {
    /// Returns the template of the server, whose cluster is `side`.
    pub(crate) fn server(&self, side: &Side) -> Template {
        let namespace = self.gw_server_template_namespace.as_ref();
        Template {
            resource: self.gw_server_type.clone(),
            name: self.gw_server_template_name.clone(),
            namespace: namespace.unwrap_or(&side.liqo.namespace).clone(),
        }
    }

    /// Returns the template of the client, whose cluster is `side`.
    pub(crate) fn client(&self, side: &Side) -> Template {
        let namespace = self.gw_client_template_namespace.as_ref();
        Template {
            resource: self.gw_client_type.clone(),
            name: self.gw_client_template_name.clone(),
            namespace: namespace.unwrap_or(&side.liqo.namespace).clone(),
        }
    }
}
