//! The command line.

use crate::{
    completion, create, delete, generate, get, info, install, network, parse, test, uninstall,
    version,
};
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// Installs, connects and inspects clusters.
///
/// Example: liqoctl install --kubeconfig rome.yaml --cluster-id rome
#[derive(Parser, Debug)]
#[command(name = "liqoctl", version, disable_version_flag = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,

    #[command(subcommand)]
    command: Command,
}

/// Flags that every command takes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Global {
    /// The kubeconfig file of the cluster. Without this, KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The cluster of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) cluster: Option<String>,

    /// The user of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// The namespace of the object that a command is about.
    #[arg(long, short, global = true, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    /// Liqo's namespace. Without this, it is found by its label; `liqo` for an installation.
    #[arg(long, global = true, value_name = "NAMESPACE")]
    pub(crate) liqo_namespace: Option<String>,

    /// Annotations for all that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_annotations: Vec<(String, String)>,

    /// Labels for all that is created: key=value,...
    #[arg(long, global = true, value_delimiter = ',', value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) global_labels: Vec<(String, String)>,

    /// Skip confirmations.
    #[arg(long, global = true)]
    pub(crate) skip_confirm: bool,

    /// Tell more.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,

    /// How long to wait at most, as 90s or 2m0s. Without this, what suits the command.
    #[arg(long, global = true, value_parser = parse::duration, value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Installs Liqo in a cluster, or upgrades it.
    ///
    /// Example: liqoctl install --kubeconfig rome.yaml --cluster-id rome --cluster-labels region=A
    Install(Box<install::Options>),
    /// Removes Liqo from a cluster.
    ///
    /// Example: liqoctl uninstall --kubeconfig rome.yaml --purge --skip-confirm
    Uninstall(uninstall::Options),
    /// Connects the networks of two clusters.
    Network(network::Options),
    /// Creates an object.
    Create(create::Options),
    /// Prints an object for another cluster to have.
    Generate(generate::Options),
    /// Prints objects.
    Get(get::Options),
    /// Deletes an object.
    Delete(delete::Options),
    /// Shows how an installation and its peers are.
    ///
    /// Example: liqoctl info --get local.clusterID
    Info(info::Options),
    /// Tests that peers reach each other.
    Test(test::Options),
    /// Prints the versions of this program and of the installation.
    ///
    /// Example: liqoctl version --client
    Version(version::Options),
    /// Prints a script that completes commands in a shell.
    ///
    /// Example: source <(liqoctl completion bash)
    Completion(completion::Options),
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error that names the cause and, where one is known, the cure.
    pub(crate) async fn run(self) -> Result<()> {
        let global = &self.global;
        match self.command {
            Command::Install(options) => install::run(global, *options).await,
            Command::Uninstall(options) => uninstall::run(global, options).await,
            Command::Network(options) => network::run(global, options).await,
            Command::Create(options) => create::run(global, options).await,
            Command::Generate(options) => generate::run(global, options).await,
            Command::Get(options) => get::run(global, options).await,
            Command::Delete(options) => delete::run(global, options).await,
            Command::Info(options) => info::run(global, options).await,
            Command::Test(options) => test::run(global, options).await,
            Command::Version(options) => version::run(global, &options).await,
            Command::Completion(options) => completion::run(&options),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_may_stand_after_the_command() {
        let cli = Cli::try_parse_from([
            "liqoctl",
            "install",
            "k3s",
            "--kubeconfig",
            "rome.yaml",
            "--cluster-labels",
            "region=A,provider=Azure",
            "--timeout",
            "5m",
        ])
        .unwrap();

        assert_eq!(cli.global.timeout, Some(Duration::from_secs(300)));
        assert_eq!(cli.global.kubeconfig, Some("rome.yaml".into()));
    }
}
