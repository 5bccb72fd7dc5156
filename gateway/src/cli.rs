//! The command line of the gateway: arguments, help and the implementation of each subcommand.

mod check;
mod cleanup;
mod keygen;
mod numbers;
mod plan;
mod run;
mod status;

use crate::shell::privilege;
use clap::{Args, Parser, Subcommand};
use std::io::Write;
use std::path::PathBuf;

/// Encrypts and forwards packets between this cluster and all its peers.
///
/// One process serves all peers of a cluster: WireGuard on one UDP port, a VXLAN overlay to
/// the nodes, and address translation between them. All replicas are active. If one fails,
/// the others carry its traffic.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  gateway keygen keys/gw-milan                      generate a key for the peering with milan
  gateway plan fabric.yaml                          allocate addresses, once
  gateway check fabric.yaml --keys keys             validate file and keys
  gateway run --config fabric.yaml --keys keys      serve, until stopped
  gateway status                                    show peers, sessions, drops
  gateway cleanup                                   remove the kernel state of `run`";

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Run>),
    Plan(plan::Plan),
    Check(check::Check),
    Keygen(keygen::Keygen),
    Status(status::Status),
    Cleanup(cleanup::Cleanup),
}

/// Arguments that select one of the gateways on this machine.
#[derive(Clone, Debug, Args)]
struct Instance {
    /// Name of this gateway on the machine.
    ///
    /// The names of network namespace (`liqo-NAME`), status socket and BPF pins contain NAME.
    #[arg(long = "instance", value_name = "NAME", default_value = "gateway", env = "LIQO_INSTANCE", value_parser = telemetry::instance::parse)]
    name: String,

    /// Directory of the status socket.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/run/liqo",
        env = "LIQO_RUN_DIR"
    )]
    run_dir: PathBuf,
}

impl Instance {
    fn socket(&self) -> PathBuf {
        self.run_dir.join(format!("{}.sock", self.name))
    }
}

impl Cli {
    /// Runs the subcommand, which writes its result to `out`.
    ///
    /// # Errors
    ///
    /// Returns the error of the subcommand.
    pub(crate) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        privilege::protect_memory()?;
        match self.command {
            Command::Run(command) => command.run(),
            Command::Plan(command) => command.run(out),
            Command::Check(command) => command.run(out),
            Command::Keygen(command) => command.run(out),
            Command::Status(command) => command.run(out),
            Command::Cleanup(command) => command.run(out),
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
}
