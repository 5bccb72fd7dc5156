//! `liqoctl network disconnect` and `reset`: undo the steps of `connect`, also if the remote side is
//! unreachable.

use super::args::{Remove, TIMEOUT};
use super::steps::{Client, Gateway, PeerConfiguration, Server};
use crate::cluster::Cluster;
use crate::global::Global;
use crate::objects;
use crate::pair::{Pair, Side};
use crate::progress::{self, begin};
use crate::steps::{Runner, Step as _, removed};
use crate::tenant;
use crate::wait::Deadline;
use anyhow::{Context as _, Result, anyhow};
use control_api::PublicKey;
use kube::{Api, ResourceExt as _};
use std::time::Duration;

/// Time limit of the first requests. A side that exceeds it is treated as unreachable.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(20);

/// Extent of the removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The gateways.
    Gateways,
    /// The gateways and the Configurations.
    Network,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Remove, extent: Extent) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let opened = tokio::time::timeout(
        REMOTE_TIMEOUT.min(deadline.left()),
        Pair::open(global, &options.remote),
    )
    .await
    .unwrap_or_else(|_| Err(anyhow!("a request to one of the clusters timed out")));
    let sides = match opened {
        Ok(Pair { local, remote }) => (local, Some(remote)),
        Err(error) => (local_side(global, options, error).await?, None),
    };
    Runner::run(deadline, async |runner| match &sides {
        (local, Some(remote)) => both(runner, local, remote, extent, options.wait).await,
        (local, None) => remove(runner, local, extent, options.wait).await,
    })
    .await
}

/// Returns the local side if a flag contains the cluster ID of the remote one.
async fn local_side(global: &Global, options: &Remove, error: anyhow::Error) -> Result<Side> {
    let cluster = Cluster::local(global).await?;
    let Ok(liqo) = cluster.installation().await else {
        // The local cluster is unreachable.
        return Err(error);
    };
    let Some(peer) = options.remote_cluster_id.clone() else {
        let known = tenant::all(&cluster).await.unwrap_or_default();
        let known: Vec<String> = known.into_iter().map(|(_, peer)| peer).collect();
        return Err(error).context(format!(
            "the objects of both sides cannot be removed; add --remote-cluster-id ID (known peers: {}) to remove those of the local side only",
            if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        ));
    };
    progress::warn(format_args!(
        "only the objects of the local side are removed: {error:#}"
    ));
    Ok(Side {
        cluster,
        liqo,
        peer,
    })
}

/// Removes the objects of both sides of a peering.
///
/// # Errors
///
/// Returns the errors of both sides.
pub(crate) async fn reset(runner: &Runner, pair: &Pair, wait: bool) -> Result<()> {
    both(runner, &pair.local, &pair.remote, Extent::Network, wait).await
}

/// Removes the objects of both sides. The failure of one side does not end the removal of the other.
async fn both(
    runner: &Runner,
    local: &Side,
    remote: &Side,
    extent: Extent,
    wait: bool,
) -> Result<()> {
    let (here, there) = tokio::join!(
        remove(runner, local, extent, wait),
        remove(runner, remote, extent, wait),
    );
    match (here, there) {
        (Err(here), Err(there)) => Err(anyhow!("{here:#}; and {there:#}")),
        (here, there) => here.and(there),
    }
}

/// Undoes the steps of one side. A side has one gateway object, or two if the clusters were
/// connected in both directions.
async fn remove(runner: &Runner, side: &Side, extent: Extent, wait: bool) -> Result<()> {
    let Some(namespace) = tenant::find(&side.cluster, &side.peer).await? else {
        already_removed(side, extent);
        return Ok(());
    };
    let gateway = Gateway::new(side, &namespace, false);
    let (server, client) = (Server(gateway), Client(gateway));
    let configuration = PeerConfiguration {
        side,
        namespace: &namespace,
    };
    let steps = match extent {
        Extent::Gateways => vec![server.undo(), client.undo()],
        Extent::Network => vec![configuration.undo(), server.undo(), client.undo()],
    };
    let keys = async {
        match extent {
            Extent::Gateways => Ok(()),
            Extent::Network => delete_public_keys(side, &namespace).await,
        }
    };
    tokio::try_join!(runner.undo(steps, wait), keys)?;
    Ok(())
}

/// Deletes the public keys of the peer. The garbage collector would delete them later than their gateways, and does not
/// delete those that a user has applied.
async fn delete_public_keys(side: &Side, namespace: &str) -> Result<()> {
    let cluster = &side.cluster;
    let api = Api::<PublicKey>::namespaced(cluster.client.clone(), namespace);
    for key in objects::list::<PublicKey>(cluster, namespace, &side.peer).await? {
        cluster.delete(&api, "publickey", &key.name_any()).await?;
    }
    Ok(())
}

fn already_removed(side: &Side, extent: Extent) {
    let show = |noun: &str| {
        let deleting = begin(side.cluster.side, format_args!("Deleting {noun}"));
        deleting.done(removed(noun, false));
    };
    show("gateways");
    if extent == Extent::Network {
        show("network configuration");
    }
}
