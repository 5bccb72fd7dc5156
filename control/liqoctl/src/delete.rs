//! `liqoctl delete`: objects of a peering, one at a time.

use crate::cli::Global;
use crate::cluster::Cluster;
use crate::kinds::Kind;
use crate::progress::step;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use control_api::{Configuration, GatewayClient, GatewayServer, PublicKey};
use kube::Api;

/// What to delete.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Deletes a Configuration.
    ///
    /// Example: liqoctl delete configuration milan -n liqo-tenant-milan
    Configuration(Which),
    /// Deletes a GatewayServer.
    ///
    /// Example: liqoctl delete gatewayserver rome -n liqo-tenant-rome
    Gatewayserver(Which),
    /// Deletes a GatewayClient.
    ///
    /// Example: liqoctl delete gatewayclient milan -n liqo-tenant-milan
    Gatewayclient(Which),
    /// Deletes a PublicKey.
    ///
    /// Example: liqoctl delete publickey milan -n liqo-tenant-milan
    Publickey(Which),
}

/// Which object.
#[derive(Args, Debug)]
struct Which {
    /// Its name.
    name: String,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if there is no such object, or if the API server refuses.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    match options.command {
        Command::Configuration(which) => delete::<Configuration>(global, &which.name).await,
        Command::Gatewayserver(which) => delete::<GatewayServer>(global, &which.name).await,
        Command::Gatewayclient(which) => delete::<GatewayClient>(global, &which.name).await,
        Command::Publickey(which) => delete::<PublicKey>(global, &which.name).await,
    }
}

async fn delete<K: Kind>(global: &Global, name: &str) -> Result<()> {
    let cluster = Cluster::local(global).await?;
    let kind = K::kind(&());
    let namespace = &cluster.namespace;
    let deleting = step("", format_args!("Deleting {kind} {name}"));
    let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
    if !cluster.delete(&api, &kind, name).await? {
        bail!(
            "there is no {kind} {name} in namespace {namespace} of {}: name its namespace by -n",
            cluster.place()
        );
    }
    deleting.done(format_args!("{kind} {name} correctly deleted"));
    Ok(())
}
