//! Measures a peering without networking for `cargo xtask bench peer`: `liqoctl peer`, `unpeer` and `force unpeer` from
//! start to exit, and the requests of a peering.
//!
//! The program starts two [control planes](kubernetes_lab::control_plane) without nodes, each with a controller manager
//! that has the rights of the chart only. It prints the samples as JSON. Progress goes to the standard error.

#![forbid(unsafe_code)]

mod requests;
mod rounds;
mod site;
mod verified;

use anyhow::Result;
use clap::Parser;
use kubernetes_lab::control_plane;
use kubernetes_lab::place::ARTIFACTS_VARIABLE;
use kubernetes_lab::suite::block_on;
use std::path::PathBuf;

#[derive(Debug, Parser)]
struct Cli {
    /// The program `controller-manager`, a release build.
    #[arg(long, value_name = "PROGRAM")]
    manager: PathBuf,

    /// The program `liqoctl`.
    #[arg(long, value_name = "PROGRAM")]
    liqoctl: PathBuf,

    /// The folder of the Helm chart, whose CRDs and rights are installed.
    #[arg(long, value_name = "FOLDER")]
    chart: PathBuf,

    /// The folder of the programs of Kubernetes.
    #[arg(long, value_name = "FOLDER", env = ARTIFACTS_VARIABLE)]
    artifacts: PathBuf,

    /// The number of rounds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Prints the requests of each peering that takes longer than this, with their times.
    #[arg(long, value_name = "SECONDS")]
    trace: Option<f64>,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    // Before other threads start.
    control_plane::isolate()?;
    let samples = block_on(rounds::run(&cli))?;
    println!("{}", serde_json::to_string_pretty(&samples)?);

    Ok(())
}
