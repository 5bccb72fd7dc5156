//! `liqoctl unauthenticate`: deletes the Identity of the consumer and the Tenant of the provider.

use super::TIMEOUT;
use crate::cluster::{Cluster, RemoteFlags};
use crate::global::Global;
use crate::objects::{self, Kind};
use crate::pair::{Pair, Side};
use crate::progress::begin;
use crate::removal::Removal;
use crate::steps::{Runner, removed};
use crate::switch::Wait;
use crate::tenant;
use crate::wait::Deadline;
use anyhow::{Result, bail};
use clap::Args;
use control_api::{Identity, ResourceSlice, Tenant, VirtualNode, labels};
use kube::ResourceExt as _;

/// Flags of `liqoctl unauthenticate`.
#[derive(Args, Debug)]
pub(crate) struct Unauthenticate {
    #[command(flatten)]
    remote: RemoteFlags,

    #[command(flatten)]
    removal: Wait,
}

/// Runs `liqoctl unauthenticate`.
///
/// # Errors
///
/// Returns an error that names the objects that still use the credentials.
pub(crate) async fn unauthenticate(global: &Global, options: &Unauthenticate) -> Result<()> {
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let pair = Pair::open_liqo(global, &options.remote).await?;
    let Pair { local, remote } = &pair;
    let (here, there) = tokio::try_join!(
        tenant::find(&local.cluster, &local.peer),
        tenant::find(&remote.cluster, &remote.peer),
    )?;
    if let Some(namespace) = &here {
        check_unused(local, namespace).await?;
    }
    Runner::run(deadline, async |runner| {
        remove(
            runner,
            &pair,
            (here.as_deref(), there.as_deref()),
            options.removal.wait,
        )
        .await
    })
    .await
}

/// Deletes the Identity and the Tenant. A side without tenant namespace has none.
///
/// # Errors
///
/// Returns an error if an API server fails, or if an object still exists at the deadline.
pub(crate) async fn remove(
    runner: &Runner,
    pair: &Pair,
    (here, there): (Option<&str>, Option<&str>),
    wait: bool,
) -> Result<()> {
    let Pair { local, remote } = pair;
    // The consumer's controllers end before their rights do.
    undo::<Identity>(runner, local, here, "identity control plane", wait).await?;
    undo::<Tenant>(runner, remote, there, "tenant", wait).await
}

async fn undo<K: Kind>(
    runner: &Runner,
    side: &Side,
    namespace: Option<&str>,
    noun: &'static str,
    wait: bool,
) -> Result<()> {
    match namespace {
        Some(namespace) => {
            let removal = Removal::<K>::new(side, namespace, noun);
            runner.undo(vec![removal.boxed()], wait).await
        }
        None => {
            let deleting = begin(side.cluster.side, format_args!("Deleting {noun}"));
            deleting.done(removed(noun, false));
            Ok(())
        }
    }
}

/// Returns the label selector of the ResourceSlices that this cluster requests of `provider`.
pub(crate) fn requested(provider: &str) -> String {
    let (replication, remote) = (labels::REPLICATION, labels::REMOTE_ID);
    format!("{replication}=true,{remote}={provider}")
}

/// Checks that no ResourceSlice and no VirtualNode uses the credentials.
async fn check_unused(consumer: &Side, namespace: &str) -> Result<()> {
    let checking = begin(
        consumer.cluster.side,
        "Checking for leftover ResourceSlices",
    );
    let (cluster, peer) = (&consumer.cluster, &consumer.peer);
    let selector = requested(peer);
    let (slices, nodes) = tokio::try_join!(
        objects::select::<ResourceSlice>(cluster, namespace, &selector),
        objects::list::<VirtualNode>(cluster, namespace, peer),
    )?;
    refuse(cluster, "ResourceSlices", &slices)?;
    refuse(cluster, "VirtualNodes", &nodes)?;
    checking.done("No leftover resourceslices on consumer cluster");
    Ok(())
}

fn refuse<K: Kind>(cluster: &Cluster, noun: &str, found: &[K]) -> Result<()> {
    if !found.is_empty() {
        let names: Vec<String> = found.iter().map(|it| it.name_any()).collect();
        bail!(
            "{noun} of {} use the credentials ({}): run `liqoctl unpeer`, which deletes them first",
            cluster.place(),
            names.join(", ")
        );
    }
    Ok(())
}
