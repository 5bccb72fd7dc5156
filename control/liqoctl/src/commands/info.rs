//! `liqoctl info`: the state of an installation and its peers.

mod aggregated;
mod boxes;
mod exposed;
mod foreign;
mod local;
mod node;
mod peer;
mod pod;
mod query;
mod render;
mod resources;
mod unreflected;
mod virtual_nodes;
mod workload;

use crate::cluster::Cluster;
use crate::global::Global;
use crate::output::{self, Format};
use anyhow::Result;
use clap::{Args, Subcommand};
use local::Parts;
use serde_json::Value;

/// Flags of `liqoctl info`.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = false)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Option<Command>,

    /// Print as json or yaml instead of boxes.
    #[arg(long, short, global = true, value_name = "FORMAT")]
    output: Option<Format>,

    /// Print one field only, for example local.clusterID or network.podCIDRs.
    #[arg(long, short, global = true, value_name = "PATH")]
    get: Option<String>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Shows all peers, or the named ones.
    ///
    /// Example: liqoctl info peer milan -o yaml
    Peer {
        /// Cluster IDs of the peers.
        ids: Vec<String>,
    },
    /// Shows where a pod of an offloaded namespace runs, and what prevents it.
    ///
    /// Follows the pod to its virtual node, the provider's API server, the remote namespace, the ShadowPod, the remote
    /// pod and the network between the clusters. The objects at the provider are read with the credentials of the
    /// VirtualNode, which are in a Secret of the tenant namespace.
    ///
    /// Ends with exit code 0 if the whole chain works, else with 1. --timeout limits the requests to the provider
    /// (default: 10s).
    ///
    /// Example: liqoctl info pod demo/web
    ///
    /// Example: liqoctl info pod web --namespace demo -o yaml
    ///
    /// Example: liqoctl info pod demo/web --get end.reason
    #[command(visible_alias = "po")]
    Pod {
        /// The pod: NAMESPACE/NAME, or NAME with --namespace.
        #[arg(value_parser = pod::Named::parse, value_name = "POD")]
        pod: pod::Named,
    },
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if the API server fails, or if the peer or the field does not exist.
pub(crate) async fn run(global: &Global, options: Options) -> Result<()> {
    let cluster = match options.command {
        Some(Command::Pod { .. }) => Cluster::local(global).await?,
        Some(Command::Peer { .. }) | None => Cluster::with_liqo(global).await?,
    };
    let installation = cluster.installation().await?;
    match &options.command {
        None => {
            let get = options.get.as_deref();
            let parts = Parts {
                network: global.verbose || get.is_some(),
                // Scripts that read one field must not wait for the lists of all pods.
                workloads: get.is_none_or(query::needs_workloads),
            };
            let report = local::collect(&cluster, &installation, parts).await?;
            let boxes = report.boxes()?;
            show(&options, &report.value(), || boxes)
        }
        Some(Command::Peer { ids }) => {
            let reports = peer::collect(&cluster, ids).await?;
            let value: Value = reports
                .iter()
                .map(|report| (report.id().to_owned(), report.value()))
                .collect::<serde_json::Map<_, _>>()
                .into();
            // If there is one peer, the path may lack its cluster ID.
            let value = match (&options.get, reports.as_slice()) {
                (Some(path), [only]) if !query::begins_with(path, only.id()) => only.value(),
                _ => value,
            };
            show(&options, &value, || {
                reports.iter().map(peer::Report::boxes).collect()
            })
        }
        Some(Command::Pod { pod }) => {
            let limit = global.timeout.unwrap_or(pod::TIMEOUT);
            let named = (pod, global.namespace.as_deref());
            let report = pod::collect(&cluster, &installation, named, limit).await?;
            show(&options, &report.value(), || report.boxes())?;
            report.check()
        }
    }
}

fn show(options: &Options, value: &Value, boxes: impl FnOnce() -> String) -> Result<()> {
    match (&options.get, options.output) {
        (Some(path), format) => print!("{}", query::get(value, path, format)?),
        (None, Some(format)) => output::print(format, value)?,
        (None, None) => print!("{}", boxes()),
    }
    Ok(())
}
