//! `liqoctl generate`: prints what another cluster has to be told about this one.

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::create::print;
use crate::forge;
use crate::network;
use crate::output::Format;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Subcommand, ValueEnum};
use control_api::{GatewayClient, GatewayServer, Network, labels};
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use kube::{Api, ResourceExt as _};

/// What to generate.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Prints the Configuration that a peer applies about this cluster.
    ///
    /// Example: liqoctl generate configuration | kubectl --kubeconfig milan.yaml apply -n liqo-tenant-rome -f -
    Configuration {
        /// As json or yaml.
        #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
        output: Format,
    },
    /// Prints the PublicKey that a peer applies about a gateway of this cluster.
    ///
    /// Example: liqoctl generate publickey -n liqo-tenant-milan --gateway-type client --gateway-name milan
    Publickey {
        /// The name of the GatewayServer or GatewayClient.
        #[arg(long, value_name = "NAME")]
        gateway_name: String,

        /// What it is.
        #[arg(long, value_name = "TYPE")]
        gateway_type: GatewayType,

        /// As json or yaml.
        #[arg(long, short, default_value = "yaml", value_name = "FORMAT")]
        output: Format,
    },
}

/// What a gateway is.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum GatewayType {
    /// It waits.
    Server,
    /// It calls.
    Client,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that says what is missing in the cluster.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let cluster = Cluster::local(global).await?;
    let installation = cluster.installation().await?;
    let id = &installation.cluster_id;
    match options.command {
        Command::Configuration { output } => {
            let api = Api::<Network>::namespaced(cluster.client.clone(), &installation.namespace);
            let networks = cluster.list(&api, "Networks", labels::NETWORK_TYPE).await?;
            let cidrs = network::cidrs_of(&networks)
                .map_err(|missing| anyhow!("{missing} in namespace {}", installation.namespace))?;
            let namespace = global.namespace.as_deref();
            let object = forge::configuration(id, namespace, id, &cidrs.pod, &cidrs.external);
            print(output, object)
        }
        Command::Publickey {
            gateway_name,
            gateway_type,
            output,
        } => {
            let key = key(&cluster, &gateway_name, gateway_type).await?;
            print(output, forge::public_key(id, None, id, &key, None))
        }
    }
}

async fn key(cluster: &Cluster, name: &str, type_: GatewayType) -> Result<Vec<u8>> {
    let namespace = &cluster.namespace;
    let reference = match type_ {
        GatewayType::Server => {
            let api = Api::<GatewayServer>::namespaced(cluster.client.clone(), namespace);
            let server = cluster.get(&api, "GatewayServer", name).await?;
            found(server, name, namespace)?
                .status
                .and_then(|status| status.secret_ref)
        }
        GatewayType::Client => {
            let api = Api::<GatewayClient>::namespaced(cluster.client.clone(), namespace);
            let client = cluster.get(&api, "GatewayClient", name).await?;
            found(client, name, namespace)?
                .status
                .and_then(|status| status.secret_ref)
        }
    };
    let (secret_namespace, secret) = place(reference, namespace).with_context(|| {
        format!("gateway {name} has no keys yet: wait for the controller-manager")
    })?;
    let api = Api::<Secret>::namespaced(cluster.client.clone(), &secret_namespace);
    let Some(read) = cluster.get(&api, "Secret", &secret).await? else {
        bail!("Secret {secret_namespace}/{secret} of gateway {name} is gone");
    };
    network::public_key(&read)
        .map_err(|wrong| anyhow!("Secret {secret_namespace}/{} {wrong}", read.name_any()))
}

fn found<K>(object: Option<K>, name: &str, namespace: &str) -> Result<K> {
    object.with_context(|| {
        format!(
            "there is no gateway {name} in namespace {namespace}: name the peer's namespace by -n"
        )
    })
}

fn place(reference: Option<ObjectReference>, namespace: &str) -> Option<(String, String)> {
    let reference = reference?;
    let namespace = reference.namespace.unwrap_or_else(|| namespace.to_owned());
    Some((namespace, reference.name?))
}
