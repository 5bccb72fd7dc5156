//! `cargo xtask COMMAND`: the commands to set up, test, measure and release the project.
//!
//! This crate depends on neither the eBPF object file nor the project's binaries. So it builds on a
//! machine that has only cargo and a C compiler. `cargo xtask setup` installs all other tools.

#![forbid(unsafe_code)]

mod bench;
mod chart;
mod ci;
mod cluster;
mod console;
mod crds;
mod demo;
mod fuzz;
mod image;
mod kubernetes;
mod leftovers;
mod licences;
mod liqoctl;
mod mutants;
mod setup;
mod shell;
mod test;
mod tidy;
mod view;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use shell::{Interrupted, Shell};
use std::process::ExitCode;

/// Sets up, demonstrates, tests, measures and builds Liqo in Rust.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Installs the packages and tools that this machine lacks.
    Setup,
    /// Connects two clusters with equal addresses, and checks each claim of the README.
    Demo(demo::Demo),
    /// Runs all tests, including those with real traffic between clusters.
    Test(test::Test),
    /// Measures throughput, latency, processor time and memory, and compares them with other
    /// tunnels.
    Bench(bench::Bench),
    /// Fuzzes the code that handles input of peers, pods, users and unauthenticated senders.
    Fuzz(fuzz::Fuzz),
    /// Manages real Kubernetes clusters on this machine.
    Cluster(cluster::Cluster),
    /// Runs every check that a change must pass, with only the declared packages visible.
    Ci(ci::Options),
    /// Runs a command with only the programs of one package set visible.
    View(view::View),
    /// Runs the static checks: tidiness, licences, format, lints, documentation.
    #[command(hide = true)]
    Checks,
    /// Generates the chart's custom resource definitions from the Rust types.
    Crds(crds::Options),
    /// Checks the Helm chart: lint, rendered manifests, and values that it must refuse.
    Chart(chart::Options),
    /// Builds this project's container images without Docker, and prints their paths.
    Image(image::Options),
    /// Builds the released `liqoctl`, which includes helm, and prints its path.
    Liqoctl(liqoctl::Options),
    /// Builds the programs of Kubernetes for the laboratory, and prints their folder.
    #[command(hide = true)]
    KubernetesBinaries(kubernetes::Binaries),
    /// Builds the programs of the laboratory's test pods, and prints their folder.
    #[command(hide = true)]
    GuestPrograms,
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            console::failure(&error);
            if error.is::<Interrupted>() {
                return ExitCode::from(INTERRUPTED);
            }
            ExitCode::FAILURE
        }
    }
}

/// The exit code of a command that a signal has interrupted: 128 plus the number of SIGINT, as in a
/// shell. SIGTERM and SIGHUP cause the same exit code.
const INTERRUPTED: u8 = 130;

fn run(cli: Cli) -> Result<ExitCode> {
    let mut shell = Shell::new()?;
    match cli.command {
        Command::Setup => setup::run(&mut shell)?,
        Command::Demo(options) => return demo::run(&mut shell, &options),
        Command::Test(options) => test::run(&mut shell, &options)?,
        Command::Bench(options) => bench::run(&mut shell, &options)?,
        Command::Cluster(options) => cluster::run(&mut shell, &options)?,
        Command::Fuzz(options) => fuzz::run(&mut shell, &options)?,
        Command::Ci(options) => ci::run(&mut shell, &options)?,
        Command::View(options) => view::run(&mut shell, &options)?,
        Command::Checks => ci::checks(&mut shell)?,
        Command::Crds(options) => crds::run(&mut shell, &options)?,
        Command::Chart(options) => chart::run(&mut shell, &options)?,
        Command::Image(options) => image::run(&mut shell, &options)?,
        Command::Liqoctl(options) => liqoctl::run(&mut shell, &options)?,
        Command::GuestPrograms => cluster::guests(&mut shell)?,
        Command::KubernetesBinaries(options) => kubernetes::run(&mut shell, &options)?,
    }

    Ok(ExitCode::SUCCESS)
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
