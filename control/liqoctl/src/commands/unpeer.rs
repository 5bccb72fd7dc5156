//! `liqoctl unpeer`: ends the peering with a provider, the remote cluster. The reverse peering is kept.
//!
//! ```text
//! ResourceSlices, VirtualNodes           their workloads end, while both clusters still cooperate
//! NamespaceMaps
//! Identity, Tenant | network             at the same time; in-band, the network is last
//! tenant namespaces                      if nothing else is in them
//! ```

mod provider;
mod state;

use super::authenticate::{remove, requested};
use super::force;
use super::network::removal as network;
use crate::cluster::{Cluster, RemoteFlags};
use crate::global::Global;
use crate::pair::{Pair, Side};
use crate::progress;
use crate::prompt;
use crate::removal::Removal;
use crate::steps::Runner;
use crate::switch::Wait;
use crate::tenant;
use crate::wait::Deadline;
use anyhow::{Error, Result, anyhow, bail};
use clap::{ArgAction, Args};
use control_api::{NamespaceMap, Renew, ResourceSlice, VirtualNode};
use provider::Gone;
use state::State;
use std::time::Duration;

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Limit of the first requests. A cluster that exceeds it is unreachable, which the command reports within 10 s.
const REACHABLE: Duration = Duration::from_secs(6);

/// Limit of the requests that follow [`REACHABLE`], to find out which cluster is unreachable.
const DIAGNOSIS: Duration = Duration::from_secs(2);

/// Flags of `liqoctl unpeer`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(flatten)]
    remote: RemoteFlags,

    /// Whether the tenant namespaces are deleted, unless they contain other objects. With `true`, the command waits
    /// until they are gone. Default: delete without waiting.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        default_missing_value = "true",
        action = ArgAction::Set
    )]
    delete_namespaces: Option<bool>,

    #[command(flatten)]
    removal: Wait,
}

/// Tenant namespaces that exist.
type Existing<'a> = (Option<&'a str>, Option<&'a str>);

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the side, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let opened = tokio::time::timeout(REACHABLE, Pair::open_liqo(global, &options.remote)).await;
    let pair = match opened {
        Ok(Ok(pair)) => pair,
        Ok(Err(error)) => return Err(unreachable(global, error).await),
        Err(_) => {
            let error = anyhow!("a request to one of the clusters timed out");
            return Err(unreachable(global, error).await);
        }
    };
    let Pair { local, remote } = &pair;
    let (here, there) = tokio::try_join!(
        tenant::find(&local.cluster, &local.peer),
        tenant::find(&remote.cluster, &remote.peer),
    )?;
    if here.is_none() {
        warn_about_unknown(local, there.is_some()).await?;
    }
    let state = State::read(local, here.as_deref()).await?;
    if state.is_reversed && options.delete_namespaces == Some(true) {
        bail!(
            "cluster {} is also a consumer of the local cluster, and the tenant namespaces contain that peering: leave out --delete-namespaces, or end it first",
            local.peer
        );
    }
    let namespaces = (here.as_deref(), there.as_deref());
    let gone = state.check_reachable(&pair, namespaces).await?;
    confirm(global, &local.peer, &state.requested.offloaded()).await?;
    end_without(local, gone).await?;

    Runner::run(deadline, async |runner| {
        let is_ended = delete(runner, &pair, namespaces, &state, options.removal.wait).await?;
        if is_ended && options.delete_namespaces != Some(false) {
            let waits = options.delete_namespaces.is_some() && options.removal.wait;
            delete_namespaces(&pair, namespaces, waits.then_some(deadline)).await?;
        }
        Ok(())
    })
    .await
}

/// Adds the remedy to the error of an unreachable provider.
async fn unreachable(global: &Global, error: Error) -> Error {
    if !error.is::<crate::failure::Unreachable>() && !error.to_string().contains("timed out") {
        return error;
    }
    let local = async {
        let cluster = Cluster::with_liqo(global).await?;
        cluster.installation().await?;
        known_peers(&cluster).await
    };
    match tokio::time::timeout(DIAGNOSIS, local).await {
        Ok(Ok(known)) => error.context(format!(
            "nothing was changed: if the remote cluster will never respond again, run `liqoctl force unpeer ID` (known peers: {known})"
        )),
        // The local cluster is unreachable.
        Ok(Err(_)) | Err(_) => error,
    }
}

/// Warns that the cluster has no peering with the remote one. After an interrupted command, only the provider has one.
async fn warn_about_unknown(local: &Side, has_remote: bool) -> Result<()> {
    let known = known_peers(&local.cluster).await?;
    if has_remote && known.is_empty() {
        return Ok(());
    }
    progress::warn(format_args!(
        "the local cluster has no tenant namespace of {} (known peers: {known}): `liqoctl force unpeer ID` ends the peering with a cluster that was installed again with another ID",
        local.peer
    ));
    Ok(())
}

/// Returns the cluster IDs of the peers, for messages.
async fn known_peers(cluster: &Cluster) -> Result<String> {
    let known = tenant::all(cluster).await?;
    let known: Vec<String> = known.into_iter().map(|(_, peer)| peer).collect();
    Ok(known.join(", "))
}

/// Prints which namespaces lose their pods at the provider. On a terminal, asks for confirmation.
async fn confirm(global: &Global, peer: &str, offloaded: &[String]) -> Result<()> {
    if offloaded.is_empty() {
        return Ok(());
    }
    let text = format!(
        "the pods of the namespaces {} at {peer} are deleted, and their objects there",
        offloaded.join(", ")
    );
    if prompt::is_interactive() && !global.skip_confirm {
        prompt::confirm(&format!("Unpeering: {text}. Continue?")).await
    } else {
        progress::warn(text);
        Ok(())
    }
}

/// Warns that the provider is gone. The controller manager recognizes refused credentials, and needs the annotation of a
/// dead cluster if there are no replicas.
async fn end_without(consumer: &Side, gone: Option<Gone>) -> Result<()> {
    let Some(gone) = gone else {
        return Ok(());
    };
    let peer = &consumer.peer;
    progress::warn(format_args!(
        "{peer} {gone}: the peering ends without its cooperation"
    ));
    match gone {
        Gone::CredentialsRefused => Ok(()),
        Gone::NoTenant => force::declare_dead(&consumer.cluster, peer).await,
    }
}

/// Deletes the objects of the peering. Returns whether both directions have ended, so that the network was removed as well.
async fn delete(
    runner: &Runner,
    pair: &Pair,
    namespaces: Existing<'_>,
    state: &State,
    wait: bool,
) -> Result<bool> {
    let local = &pair.local;
    // In-band, the controller manager deletes the objects at the provider through the network.
    let wait = wait || state.is_in_band;
    if let Some(namespace) = namespaces.0 {
        let nodes = Removal::<VirtualNode>::new(local, namespace, "virtualnodes");
        let slices = Removal::<ResourceSlice>::new(local, namespace, "resourceslices")
            .of(requested(&local.peer));
        let maps = Removal::<NamespaceMap>::new(local, namespace, "namespacemaps")
            .of(requested(&local.peer));
        // A peering without offloaded namespaces has none, which spares a request.
        let maps = maps.boxed().filter(|_| !state.requested.maps.is_empty());
        runner
            .undo(vec![maps, nodes.boxed(), slices.boxed()], wait)
            .await?;
    }
    let network = network::reset(runner, pair, wait);
    let credentials = remove(runner, pair, namespaces, wait);
    if !state.is_in_band && !state.is_reversed {
        tokio::try_join!(credentials, network)?;
        return Ok(true);
    }
    credentials.await?;
    if let Some(namespace) = namespaces.0.filter(|_| state.is_in_band) {
        let renews = Removal::<Renew>::new(local, namespace, "renews").of(requested(&local.peer));
        runner.undo(vec![renews.boxed()], true).await?;
    }
    // An `unpeer` of the reverse direction at the same time leaves the network to this one: both read the Tenants and the
    // replicas of Renews after they have deleted their own ones, so the later of the two removes the network.
    if state.is_reversed && state::is_reversed(local, namespaces.0).await? {
        return Ok(false);
    }
    // In-band, the other command still needs the tunnel after the end of its Tenant, which may have been before this command.
    if state::has_renews_by_proxy(local, namespaces.0).await? {
        return Ok(false);
    }
    network.await?;
    Ok(true)
}

/// Deletes the tenant namespaces. Waits until they are gone if there is a deadline.
async fn delete_namespaces(
    pair: &Pair,
    (here, there): Existing<'_>,
    deadline: Option<Deadline>,
) -> Result<()> {
    let delete = async |cluster: &Cluster, name: Option<&str>| match name {
        Some(name) => tenant::removal::delete(cluster, name, deadline).await,
        None => Ok(()),
    };
    tokio::try_join!(
        delete(&pair.local.cluster, here),
        delete(&pair.remote.cluster, there),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests;
