//! Measures the control runtime for `cargo xtask bench runtime`: memory, CPU time per change, time
//! until the cache is complete, and connections.
//!
//! The program starts a [control plane](kubernetes_lab::control_plane) without nodes, creates
//! objects, and starts the measured processes. It prints the samples as JSON. Progress goes to the
//! standard error.

#![forbid(unsafe_code)]

mod generator;
mod objects;
mod process;
mod stages;

use anyhow::{Context as _, Result};
use clap::Parser;
use kubernetes_lab::control_plane::{self, ControlPlane, Options};
use kubernetes_lab::place::{ARTIFACTS_VARIABLE, Artifacts};
use kubernetes_lab::suite::block_on;
use std::path::PathBuf;

#[derive(Debug, Parser)]
struct Cli {
    /// The program that follows Pods and EndpointSlices.
    #[arg(long, value_name = "PROGRAM")]
    follower: PathBuf,

    /// The controller manager.
    #[arg(long, value_name = "PROGRAM")]
    manager: PathBuf,

    /// The folder of the Helm chart, whose CRDs are installed.
    #[arg(long, value_name = "FOLDER")]
    chart: PathBuf,

    /// The folder of the programs of Kubernetes.
    #[arg(long, value_name = "FOLDER", env = ARTIFACTS_VARIABLE)]
    artifacts: PathBuf,

    /// The number of times that each process is started and measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The number of changes of which the CPU time is measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    // Before other threads start.
    control_plane::isolate()?;
    let samples = block_on(run(&cli))?;
    println!("{}", serde_json::to_string_pretty(&samples)?);

    Ok(())
}

async fn run(cli: &Cli) -> Result<stages::Samples> {
    let mut options = Options::new(Artifacts::new(&cli.artifacts));
    // The audit log costs CPU time of the machine.
    options.audit = false;
    let control_plane = ControlPlane::start(options)
        .await
        .context("the control plane does not start")?;
    control_plane.install_crds(&cli.chart).await?;

    stages::run(&control_plane, cli).await
}
