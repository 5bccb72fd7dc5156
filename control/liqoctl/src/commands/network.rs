//! `liqoctl network`: connects the networks of two clusters, and disconnects them.

pub(crate) mod args;
pub(crate) mod connect;
mod diagnose;
mod grant;
pub(crate) mod removal;
mod steps;

use crate::global::Global;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Flags of `liqoctl network`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Connects two clusters: the local one gets the client, the remote one the server.
    ///
    /// Example: liqoctl network connect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml --gw-server-service-type NodePort --wait
    Connect(Box<args::Connect>),
    /// Removes the gateways of two clusters and keeps their network configuration.
    ///
    /// Example: liqoctl network disconnect --kubeconfig rome.yaml --remote-kubeconfig milan.yaml
    Disconnect(args::Remove),
    /// Removes the gateways and the network configuration of two clusters.
    ///
    /// Example: liqoctl network reset --kubeconfig rome.yaml --remote-kubeconfig milan.yaml
    Reset(args::Remove),
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    match options.command {
        Command::Connect(options) => connect::run(global, &options).await,
        Command::Disconnect(options) => {
            removal::run(global, &options, removal::Extent::Gateways).await
        }
        Command::Reset(options) => removal::run(global, &options, removal::Extent::Network).await,
    }
}
