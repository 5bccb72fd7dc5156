//! `liqoctl version`.

use crate::cluster::Cluster;
use crate::global::Global;
use crate::manager;
use crate::progress;
use anyhow::Result;
use clap::Args;

/// The version of this program.
pub(crate) const CLIENT: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Flags of `liqoctl version`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Print the version of this program only.
    #[arg(long)]
    client: bool,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    println!("Client version: {CLIENT}");
    if options.client {
        return Ok(());
    }
    let cluster = Cluster::with_liqo(global).await?;
    let installation = cluster.installation().await?;
    let version = manager::version(&cluster, &installation.namespace).await?;
    let version = version.unwrap_or_else(|| "unknown".to_owned());
    println!("Server version: {version}");
    if version != CLIENT {
        progress::warn("this liqoctl and the installation have different versions");
    }
    Ok(())
}
