//! `liqoctl unoffload`: ends the extension of namespaces to other clusters.

mod pods;
mod remaining;
mod step;

#[cfg(test)]
mod tests;

use super::offload::OFFLOADING;
use crate::cluster::Cluster;
use crate::failure::if_permitted;
use crate::global::Global;
use crate::namespaces;
use crate::progress::{self, show_if_slow};
use crate::prompt;
use crate::steps::Runner;
use crate::wait::Deadline;
use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Subcommand};
use control_api::NamespaceOffloading;
use kube::Api;
use std::time::Duration;
use step::Removal;

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Time for reading what remains after the command's limit.
const DIAGNOSIS: Duration = Duration::from_secs(5);

/// Flags of `liqoctl unoffload`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Ends the extension of namespaces to other clusters.
    ///
    /// Their remote namespaces are deleted with all objects. Controllers create the pods in the local cluster again.
    ///
    /// Example: liqoctl unoffload namespace foo
    #[command(visible_aliases = ["ns", "namespaces"])]
    Namespace(Namespace),
}

/// Flags of `liqoctl unoffload namespace`.
#[derive(Args, Debug)]
pub(crate) struct Namespace {
    #[command(flatten)]
    namespaces: namespaces::Flags,
}

/// Name of an offloaded namespace, and its object.
type Target = (String, NamespaceOffloading);

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the namespace, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    let Command::Namespace(flags) = &options.command;
    let limit = global.timeout.unwrap_or(TIMEOUT);
    let cluster = Cluster::local(global).await?;
    let read = tokio::time::timeout(limit, read(&cluster, flags));
    let read = show_if_slow("Reading the namespaces", read).await;
    let (targets, running) = read.with_context(|| {
        format!(
            "nothing was changed: {} did not respond in time; check the network path to it, or set a longer --timeout",
            cluster.place()
        )
    })??;
    if let Some(text) = pods::describe(&running) {
        if prompt::is_interactive() && !global.skip_confirm {
            prompt::confirm(&format!("Unoffloading: {text}. Continue?")).await?;
        } else {
            progress::warn(text);
        }
    }
    // The limit does not include the user's answer.
    unoffload(&cluster, targets, Deadline::after(limit)).await
}

/// Returns the offloaded namespaces with their objects, and the pods of these namespaces in other clusters.
async fn read(cluster: &Cluster, flags: &Namespace) -> Result<(Vec<Target>, Vec<pods::Running>)> {
    let (mut targets, mut running) = (Vec::new(), Vec::new());
    for namespace in flags.namespaces.read(cluster).await? {
        let name = namespace.name;
        let api = Api::<NamespaceOffloading>::namespaced(cluster.client.clone(), &name);
        let existing = cluster.get(&api, "NamespaceOffloading", OFFLOADING).await?;
        let Some(existing) = existing else {
            progress::info(format_args!(
                "Offloading of namespace {name:?} already disabled"
            ));
            continue;
        };
        // A user without the right to list pods is not asked.
        let found = if_permitted(pods::running(cluster, &name).await)?;
        running.extend(found.unwrap_or_default());
        targets.push((name, existing));
    }
    Ok((targets, running))
}

/// Deletes the objects, and waits until they are gone.
async fn unoffload(cluster: &Cluster, targets: Vec<Target>, deadline: Deadline) -> Result<()> {
    Runner::run(deadline, async |runner| {
        namespaces::for_each(targets, async |(namespace, existing)| {
            let removal = Removal::new(cluster, &namespace, existing);
            let Err(error) = runner.apply(&removal, &()).await else {
                return Ok(());
            };
            let left = remaining::find(cluster, &namespace);
            let left = tokio::time::timeout(DIAGNOSIS, left).await;
            Err(match remaining::describe(&left.unwrap_or_default()) {
                Some(text) => anyhow!("{error:#}; {text}"),
                None => error,
            })
        })
        .await
    })
    .await
}
