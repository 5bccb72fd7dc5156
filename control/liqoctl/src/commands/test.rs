//! `liqoctl test`.

mod network;

use crate::global::Global;
use anyhow::Result;
use clap::{Args, Subcommand};

/// Flags of `liqoctl test`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,

    /// Stop at the first check that fails.
    #[arg(long, global = true)]
    fail_fast: bool,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Tests the connections between pods, nodes and Services of connected clusters.
    ///
    /// Runs an HTTP server on every node of every cluster and sends requests to it from every node of
    /// its peers, in both directions. The image needs sh, curl or wget, and one of httpd, busybox with
    /// httpd, or python3.
    ///
    /// Example: liqoctl test network --kubeconfig rome.yaml --remote-kubeconfigs milan.yaml --rm
    #[command(visible_alias = "net")]
    Network(network::Options),
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if a check fails, or if the test cannot be run.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    match options.command {
        Command::Network(network) => network::run(global, &network, options.fail_fast).await,
    }
}
