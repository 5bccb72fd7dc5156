//! `liqoctl test network`.

mod cards;
mod execute;
mod fixture;
mod mapping;
mod objects;
mod plan;
mod report;
mod services;

use crate::cluster::{Cluster, Flags, RemoteFlags};
use crate::global::Global;
use crate::pair::Side;
use crate::progress::{self, begin};
use crate::wait::Deadline;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use fixture::Fixture;
use futures_util::future::try_join_all;
use std::path::PathBuf;
use std::time::Duration;

/// Default limit of the test.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Flags of `liqoctl test network`.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// Check from pod to pod only.
    #[arg(long)]
    basic: bool,

    /// Print the clusters' CIDRs first.
    #[arg(long)]
    info: bool,

    /// Also check remapped external IPs.
    #[arg(long)]
    ip: bool,

    /// Also check from this machine to a LoadBalancer.
    #[arg(long)]
    lb: bool,

    /// Also check from this machine to NodePorts.
    #[arg(long)]
    np_ext: bool,

    /// The nodes whose NodePorts are checked.
    #[arg(long, default_value = "all", value_name = "NODES")]
    np_nodes: NodePortNodes,

    /// Also check from pods to NodePorts.
    #[arg(long)]
    pod_np: bool,

    /// The kubeconfig files of the peers.
    #[arg(
        long,
        short = 'p',
        required = true,
        value_delimiter = ',',
        value_name = "FILE"
    )]
    remote_kubeconfigs: Vec<PathBuf>,

    /// Remove the objects of the test at its end.
    #[arg(long)]
    rm: bool,

    /// The image of the test's pods; see above for what it needs.
    #[arg(
        long,
        default_value = "docker.io/library/busybox:latest",
        value_name = "IMAGE"
    )]
    image: String,
}

/// Nodes by role.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodePortNodes {
    /// All nodes.
    #[default]
    All,
    /// Nodes without a control plane.
    Workers,
    /// Nodes with a control plane.
    ControlPlanes,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error if a check fails, or if the test cannot be run.
pub(crate) async fn run(global: &Global, options: &Options, fail_fast: bool) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let (local, remotes) = open(global, options).await?;
    if options.info {
        for (here, there) in &remotes {
            progress::info(report::cidrs(&here.liqo.cluster_id, here).await?);
            progress::info(report::cidrs(&there.liqo.cluster_id, there).await?);
        }
    }
    let clusters: Vec<&Cluster> = std::iter::once(&local)
        .chain(remotes.iter().map(|(_, there)| &there.cluster))
        .collect();
    let preparing = begin("", "Starting a test pod on every node");
    try_join_all(
        clusters
            .iter()
            .map(|cluster| objects::create(cluster, &options.image)),
    )
    .await?;
    let fixtures = try_join_all(
        clusters
            .iter()
            .map(|cluster| fixture::ready(cluster, deadline)),
    )
    .await?;
    preparing.done("Test pods are ready on every node");

    let result = check(&remotes, &fixtures, options, fail_fast, deadline).await;
    if options.rm {
        let removing = begin("", "Removing the test pods");
        try_join_all(clusters.iter().map(|cluster| objects::remove(cluster))).await?;
        removing.done("Test pods removed");
    }
    result
}

/// Opens the local cluster and, for each remote one, both sides of its peering.
async fn open(global: &Global, options: &Options) -> Result<(Cluster, Vec<(Side, Side)>)> {
    let local = Cluster::local(global).await?;
    let here = local.installation().await?;
    let mut remotes = Vec::new();
    for kubeconfig in &options.remote_kubeconfigs {
        let flags = RemoteFlags {
            remote_kubeconfig: Some(kubeconfig.clone()),
            ..RemoteFlags::default()
        };
        let remote = Cluster::open(global, Flags::remote(&flags)).await?;
        let there = remote.installation().await?;
        if there.cluster_id == here.cluster_id {
            bail!(
                "{} is the local cluster, or has its cluster ID: name the peers with --remote-kubeconfigs",
                kubeconfig.display()
            );
        }
        let (id, peer) = (here.cluster_id.clone(), there.cluster_id.clone());
        let local_side = Side {
            cluster: local.clone(),
            liqo: here.clone(),
            peer,
        };
        let remote_side = Side {
            cluster: remote,
            liqo: there,
            peer: id,
        };
        remotes.push((local_side, remote_side));
    }
    Ok((local, remotes))
}

/// Runs all checks, in both directions of every peering.
async fn check(
    remotes: &[(Side, Side)],
    fixtures: &[Fixture],
    options: &Options,
    fail_fast: bool,
    deadline: Deadline,
) -> Result<()> {
    let checking = begin("", "Checking all pairs of nodes");
    let mut results = Vec::new();
    let (Some(local), others) = (fixtures.first(), fixtures.get(1..).unwrap_or_default()) else {
        bail!("there is no cluster to test");
    };
    'all: for ((here, there), remote) in remotes.iter().zip(others) {
        for (from, source, target) in [(here, local, remote), (there, remote, local)] {
            let to = if std::ptr::eq(from, here) {
                there
            } else {
                here
            };
            let calls = plan::prepare(from, source, to, target, options, deadline).await?;
            results.extend(execute::all(from, &calls).await?);
            if fail_fast && results.iter().any(|result| !result.is_ok()) {
                break 'all;
            }
        }
    }
    let failed = results.iter().filter(|result| !result.is_ok()).count();
    let total = results.len();
    if failed == 0 {
        checking.done(format_args!("All {total} checks passed"));
    } else {
        drop(checking);
    }
    print!("{}", report::table(&results));
    warn_of_cards(remotes).await;
    if failed > 0 {
        bail!(
            "{failed} of {total} checks failed: `liqoctl info peer` shows the state of the connections"
        );
    }
    Ok(())
}

/// Prints what the nodes' network cards lack, and what it costs.
async fn warn_of_cards(remotes: &[(Side, Side)]) {
    let here = remotes.iter().map(|(here, _)| here).take(1);
    for side in here.chain(remotes.iter().map(|(_, there)| there)) {
        match cards::warnings(side).await {
            Ok(warnings) => warnings.iter().for_each(progress::warn),
            Err(error) => progress::warn(format_args!("the network cards are unknown: {error:#}")),
        }
    }
}
