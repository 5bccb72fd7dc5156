//! `liqoctl offload`: extends namespaces to other clusters.

mod check;
mod desired;
mod outcome;

#[cfg(test)]
mod tests;

use crate::cluster::Cluster;
use crate::failure::if_permitted;
use crate::global::Global;
use crate::label_selector::LabelSelector;
use crate::namespaces::{self, Chosen};
use crate::observed::Select;
use crate::output::{self, Format};
use crate::progress::{self, begin, show_if_slow};
use crate::steps::{Lines, ObjectStep, Progress, Runner, lines};
use crate::wait::Deadline;
use crate::{manifest, parse};
use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use control_api::NamespaceOffloading;
use desired::{Desired, MappingStrategy, PodStrategy};
use kube::Api;
use outcome::Outcome;
use std::time::Duration;

/// Name of the only NamespaceOffloading of a namespace that has an effect.
pub(crate) const OFFLOADING: &str = "offloading";

/// Default limit of the command.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Flags of `liqoctl offload`.
#[derive(Args, Debug)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Extends namespaces to other clusters.
    ///
    /// Each selected cluster gets a remote namespace, in which pods of the local namespace can run, and to which its
    /// Services, Secrets and other objects are reflected.
    ///
    /// Selectors choose the clusters by the labels of their virtual nodes. Requirements of one selector are combined by
    /// AND, several selectors by OR. Without a selector, all clusters are chosen.
    ///
    /// Example: liqoctl offload namespace foo --pod-offloading-strategy Remote --selector 'region in (europe,us-west), !staging'
    #[command(visible_aliases = ["ns", "namespaces"])]
    Namespace(Box<Namespace>),
}

/// Flags of `liqoctl offload namespace`.
#[derive(Args, Debug)]
pub(crate) struct Namespace {
    #[command(flatten)]
    namespaces: namespaces::Flags,

    /// How the remote namespaces are named.
    #[arg(long, value_name = "STRATEGY", default_value = "DefaultName")]
    namespace_mapping_strategy: MappingStrategy,

    /// Where the pods of the namespace run.
    #[arg(long, value_name = "STRATEGY", default_value = "LocalAndRemote")]
    pod_offloading_strategy: PodStrategy,

    /// The name of the remote namespaces with the mapping strategy SelectedName, else ignored.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = parse::namespace,
        required_if_eq("namespace_mapping_strategy", "SelectedName")
    )]
    remote_namespace_name: Option<String>,

    /// Selects clusters by the labels of their virtual nodes. Repeat it for alternatives.
    #[arg(long, short = 'l', value_name = "SELECTOR", value_parser = LabelSelector::parse)]
    selector: Vec<LabelSelector>,

    /// Print the NamespaceOffloading as json or yaml instead of writing it.
    #[arg(long, short, value_name = "FORMAT")]
    output: Option<Format>,
}

/// Runs the command.
///
/// # Errors
///
/// Returns an error that names the namespace, the cause and the remedy.
pub(crate) async fn run(global: &Global, options: &Options) -> Result<()> {
    let Command::Namespace(flags) = &options.command;
    let desired = flags.desired();
    if let Some(format) = flags.output {
        progress::reserve_output();
        return print(global, flags, &desired, format).await;
    }
    let deadline = Deadline::after(global.timeout.unwrap_or(TIMEOUT));
    let cluster = Cluster::local(global).await?;
    offload(&cluster, flags, &desired, deadline).await
}

impl Namespace {
    fn desired(&self) -> Desired<'_> {
        let name = self.remote_namespace_name.as_deref();
        if name.is_some() && self.namespace_mapping_strategy != MappingStrategy::SelectedName {
            progress::warn(
                "--remote-namespace-name has no effect without --namespace-mapping-strategy SelectedName",
            );
        }
        Desired {
            mapping: self.namespace_mapping_strategy,
            pods: self.pod_offloading_strategy,
            remote_name: name
                .filter(|_| self.namespace_mapping_strategy == MappingStrategy::SelectedName),
            selectors: &self.selector,
        }
    }
}

/// Prints the objects. Names need no API server, labels do.
async fn print(
    global: &Global,
    flags: &Namespace,
    desired: &Desired<'_>,
    format: Format,
) -> Result<()> {
    let chosen = match flags.namespaces.offline() {
        Some(chosen) => chosen,
        None => {
            let cluster = Cluster::local(global).await?;
            let read = flags.namespaces.read(&cluster);
            show_if_slow("Reading the namespaces", read).await?
        }
    };
    let chosen = check::unprotected(chosen, None)?;
    desired.check_names(&chosen, None)?;
    let objects = chosen.iter().map(|namespace| {
        let mut object = desired.manifest(&namespace.name);
        manifest::add_metadata(
            &mut object,
            &global.global_labels,
            &global.global_annotations,
        );
        manifest::printed(object)
    });
    output::print_all(format, &objects.collect::<Vec<_>>())
}

/// A namespace, and its NamespaceOffloading if it has one.
type Target = (Chosen, Option<NamespaceOffloading>);

/// Writes the objects, and waits until the controllers have processed them.
async fn offload(
    cluster: &Cluster,
    flags: &Namespace,
    desired: &Desired<'_>,
    deadline: Deadline,
) -> Result<()> {
    let read = tokio::time::timeout(deadline.left(), read(cluster, flags, desired));
    let targets = show_if_slow("Reading the namespaces", read).await;
    let targets = targets.with_context(|| {
        format!(
            "nothing was changed: {} did not respond in time; check the network path to it, or set a longer --timeout",
            cluster.place()
        )
    })??;

    Runner::run(deadline, async |runner| {
        namespaces::for_each(targets, async |(namespace, existing)| {
            let name = &namespace.name;
            let generation = write(runner, cluster, desired, name, existing).await?;
            wait(runner, cluster, desired, name, generation).await
        })
        .await
    })
    .await
}

/// Reads the namespaces, and checks everything that can be checked before the first write.
async fn read(cluster: &Cluster, flags: &Namespace, desired: &Desired<'_>) -> Result<Vec<Target>> {
    let installation = match if_permitted(cluster.find_installation().await)? {
        Some(None) => Some(cluster.installation().await?),
        found => found.flatten(),
    };
    let chosen = flags.namespaces.read(cluster).await?;
    let chosen = check::unprotected(chosen, installation.as_ref())?;
    let id = installation.as_ref().map(|it| it.cluster_id.as_str());
    desired.check_names(&chosen, id)?;
    let mut targets = Vec::new();
    for namespace in chosen {
        let api = Api::<NamespaceOffloading>::namespaced(cluster.client.clone(), &namespace.name);
        let existing = cluster.get(&api, "NamespaceOffloading", OFFLOADING).await?;
        if let Some(existing) = &existing {
            desired.check_immutable(&namespace.name, existing)?;
        }
        targets.push((namespace, existing));
    }
    Ok(targets)
}

/// Writes the object of a namespace, and returns its generation.
async fn write(
    runner: &Runner,
    cluster: &Cluster,
    desired: &Desired<'_>,
    namespace: &str,
    existing: Option<NamespaceOffloading>,
) -> Result<i64> {
    let lines = Lines {
        scope: "",
        apply: lines(
            &format!("Enabling namespace offloading for {namespace:?}"),
            &format!("Offloading of namespace {namespace:?} correctly enabled"),
        ),
        wait: None,
        goal: "writing the NamespaceOffloading",
    };
    let select = Select::Name(OFFLOADING.to_owned());
    let manifest = desired.manifest(namespace);
    let generation = |object: &NamespaceOffloading| {
        Progress::Done(object.metadata.generation.unwrap_or_default())
    };
    let step = ObjectStep::write(cluster, lines, select, manifest, generation);
    runner
        .apply(&step.known(existing.into_iter().collect()), &())
        .await
}

/// Waits until the controllers have processed this generation of the object.
async fn wait(
    runner: &Runner,
    cluster: &Cluster,
    desired: &Desired<'_>,
    namespace: &str,
    generation: i64,
) -> Result<()> {
    let lines = Lines {
        scope: "",
        apply: None,
        wait: None,
        goal: "offloading the namespace",
    };
    let waiting = begin(
        "",
        format_args!("Waiting for offloading of namespace {namespace:?} to complete"),
    );
    let select = Select::Name(OFFLOADING.to_owned());
    let outcome = |object: &NamespaceOffloading| outcome::of(object, generation);
    let step = ObjectStep::wait(cluster, lines, namespace, select, outcome);
    match runner.apply(&step, &()).await? {
        Outcome::Ready => waiting.done("Offloading completed successfully"),
        Outcome::NoClusterSelected => {
            drop(waiting);
            let nodes = outcome::virtual_nodes(cluster).await;
            progress::warn(outcome::none_selected(namespace, desired, nodes.as_deref()));
        }
    }
    Ok(())
}
