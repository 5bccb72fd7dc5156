//! The project's commands: `cargo xtask <command>`.
//!
//! This crate needs neither the kernel object nor the binaries, so it builds
//! on a machine that has nothing but cargo and a C compiler, and `setup` can
//! install the rest.

#![forbid(unsafe_code)]

mod bench;
mod chart;
mod ci;
mod cluster;
mod console;
mod crds;
mod demo;
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
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use shell::{Interrupted, Shell};
use std::process::ExitCode;

/// Prepares, shows, tests and measures the fabric.
#[derive(Parser, Debug)]
#[command(bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Installs what the eBPF build and the laboratory need and this machine lacks.
    Setup,
    /// Shows two clusters with the same addresses talking to each other, and judges it.
    Demo(demo::Demo),
    /// Runs all tests, those with real traffic between clusters too.
    Test(test::Test),
    /// Measures the tunnel and the complete path, side by side with others' tunnels.
    Bench(bench::Bench),
    /// Makes real Kubernetes clusters on this machine.
    Cluster(cluster::Cluster),
    /// Runs all that must hold before a change is taken.
    Ci,
    /// Writes the custom resource definitions of the chart, from the Rust types.
    Crds(crds::Options),
    /// Checks the Helm chart: lint, and what it renders and refuses.
    Chart(chart::Options),
    /// Builds this project's container images, without Docker, and prints where they are.
    Image(image::Options),
    /// Builds `liqoctl` as it is released, with helm inside, and prints where it is.
    Liqoctl(liqoctl::Options),
    /// Builds the programs of Kubernetes for the laboratory and prints their folder.
    #[command(hide = true)]
    KubernetesBinaries(kubernetes::Binaries),
    /// Builds the programs of the laboratory's pods and prints their folder.
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

/// What a shell returns for a program that Ctrl-C has ended: 128 and the number of SIGINT.
const INTERRUPTED: u8 = 130;

fn run(cli: Cli) -> Result<ExitCode> {
    let mut shell = Shell::new()?;
    match cli.command {
        Command::Setup => setup::run(&mut shell)?,
        Command::Demo(options) => return demo::run(&mut shell, &options),
        Command::Test(options) => test::run(&mut shell, &options)?,
        Command::Bench(options) => bench::run(&mut shell, &options)?,
        Command::Cluster(options) => cluster::run(&mut shell, &options)?,
        Command::Ci => ci::run(&mut shell)?,
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
