//! The command line of `cargo xtask cluster`.

mod build;
mod fault;
mod inspect;
mod life;
mod on_kind;
mod run;

use crate::{load_balancer, node};
use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code after Ctrl-C, which is 128 plus the number of SIGINT.
const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "Examples:
  cargo xtask cluster up rome milan
  cargo xtask cluster kubectl rome get nodes -o wide
  export KUBECONFIG=$(cargo xtask cluster kubeconfig rome)
  cargo xtask cluster exec rome-worker ip route
  cargo xtask cluster logs rome-worker kubelet --follow
  cargo xtask cluster down --all";

/// Real Kubernetes clusters on this machine, without Docker.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask cluster", after_help = EXAMPLES)]
pub struct Cli {
    /// Uses kind, which needs Docker: `--kind up rome`.
    #[arg(long)]
    kind: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Builds Kubernetes and all other artifacts of clusters, once per machine.
    Build(build::Build),
    /// Creates clusters, or the missing parts of existing ones.
    Up(life::Up),
    /// Removes clusters.
    Down(life::Down),
    /// Shows the clusters and their nodes.
    List(inspect::List),
    /// Prints the path of a cluster's kubeconfig.
    Kubeconfig(inspect::Kubeconfig),
    /// Loads an image into all nodes of a cluster.
    Load(run::Load),
    /// Runs a command inside a node.
    Exec(run::Exec),
    /// Shows the log of a component of a node.
    Logs(run::Logs),
    /// Shows memory and processor time of each node since its start.
    Usage(inspect::Usage),
    /// Runs kubectl against a cluster.
    Kubectl(run::Tool),
    /// Runs helm against a cluster.
    Helm(run::Tool),
    /// Impairs or restores the network between a cluster and other clusters.
    Uplink(fault::SetUplink),
    /// Kills, stops, starts, disconnects or reconnects a node.
    Node(fault::SetNode),
    /// Kills, stops or starts a component of a node.
    Component(fault::SetComponent),
    /// Disconnects or reconnects a pod.
    Pod(fault::SetPod),
    /// Starts a node from its folder, and prints its process id.
    #[command(hide = true)]
    NodeStart {
        /// Folder of the node's state.
        folder: PathBuf,
    },
    /// Runs as process 1 of a node.
    #[command(hide = true)]
    NodeInit {
        /// Folder of the node's state.
        folder: PathBuf,
    },
    /// Relays and impairs the frames of an uplink.
    #[command(hide = true)]
    Relay(fault::Relay),
    /// Assigns addresses to Services of type LoadBalancer, inside a node.
    #[command(hide = true)]
    LoadBalancer {
        /// Path of a kubeconfig with rights to read Services and to write their status.
        #[arg(long)]
        kubeconfig: PathBuf,
        /// First three octets of the addresses.
        #[arg(long)]
        prefix: String,
    },
}

/// The error of a command that Ctrl-C or SIGTERM has interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Runs a command, and prints its error.
pub fn run(cli: Cli) -> ExitCode {
    match execute(cli) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("{BAD}error:{BAD:#} {error:#}");
            if error.is::<Interrupted>() {
                return ExitCode::from(INTERRUPTED);
            }
            ExitCode::FAILURE
        }
    }
}

const BAD: anstyle::Style = anstyle::AnsiColor::Red.on_default().bold();

fn execute(cli: Cli) -> Result<ExitCode> {
    if cli.kind {
        return on_kind::execute(cli.command);
    }
    let done = ExitCode::SUCCESS;
    match cli.command {
        Command::Build(build) => {
            let artifacts = build.run()?;
            println!("{}", artifacts.folder().display());
            Ok(done)
        }
        Command::Up(up) => up.run().map(|()| done),
        Command::Down(down) => down.run().map(|()| done),
        Command::List(list) => list.run().map(|()| done),
        Command::Kubeconfig(kubeconfig) => kubeconfig.run().map(|()| done),
        Command::Load(load) => load.run().map(|()| done),
        Command::Exec(exec) => Err(exec.run()),
        Command::Logs(logs) => Err(logs.run()),
        Command::Usage(usage) => usage.run().map(|()| done),
        Command::Kubectl(tool) => Err(tool.run("kubectl")),
        Command::Helm(tool) => Err(tool.run("helm")),
        Command::Uplink(uplink) => uplink.run().map(|()| done),
        Command::Node(node) => node.run().map(|()| done),
        Command::Component(component) => component.run().map(|()| done),
        Command::Pod(pod) => pod.run().map(|()| done),
        Command::Relay(relay) => relay.run().map(|()| done),
        Command::NodeStart { folder } => node::run_start(&folder).map(|()| done),
        Command::NodeInit { folder } => node::run_init(&folder).map(|()| done),
        Command::LoadBalancer { kubeconfig, prefix } => {
            let octets: Vec<u8> = prefix.split('.').filter_map(|it| it.parse().ok()).collect();
            let Ok(prefix) = octets.try_into() else {
                bail!("--prefix {prefix}: use three octets, as in 172.18.1");
            };
            runtime()?.block_on(load_balancer::run(&kubeconfig, prefix))?;
            Ok(done)
        }
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start a runtime")
}

/// Replaces this process by `command`. Returns only if the replacement fails.
fn replace_process(mut command: std::process::Command) -> anyhow::Error {
    use std::os::unix::process::CommandExt as _;

    let name = command.get_program().to_string_lossy().into_owned();
    anyhow::Error::new(command.exec()).context(format!("failed to start {name}"))
}

/// The arguments that are passed to another program.
#[derive(clap::Args, Debug)]
struct Rest {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    args: Vec<OsString>,
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
    fn arguments_behind_a_command_are_not_ours() {
        let words = [
            "cluster", "kubectl", "rome", "get", "nodes", "-o", "wide", "--help",
        ];

        assert!(Cli::try_parse_from(words).is_ok());
    }
}
