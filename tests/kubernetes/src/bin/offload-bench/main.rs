//! Measures offloaded pods against pods of the provider for `cargo xtask bench offload`.
//!
//! The program creates two clusters, installs Liqo and peers them. It prints the samples as JSON. Progress goes to the
//! standard error.

#![forbid(unsafe_code)]

mod bench;
mod clusters;
mod commands;
mod hollow;
mod pods;
mod processes;
mod requests;
mod rounds;
mod virtual_nodes;

use anyhow::Result;
use clap::Parser;
use kubernetes_lab::suite::block_on;
use kubernetes_lab::{cluster, place};
use std::path::PathBuf;

#[derive(Debug, Parser)]
struct Cli {
    /// The laboratory's program, which the nodes run.
    #[arg(long, value_name = "PROGRAM")]
    laboratory: PathBuf,

    /// The number of rounds, each with a pair of batches of pods.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The number of pods of a batch.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    pods: u32,

    /// The numbers of pods of batches on simulated nodes.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    hollow: Vec<u32>,

    /// Keeps the clusters, and uses those of a former run.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    place::use_program(&cli.laboratory)?;
    let samples = block_on(rounds::run(&cli));
    if !cli.keep {
        clusters::remove()?;
        cluster::clear_machine()?;
    }
    println!("{}", serde_json::to_string_pretty(&samples?)?);

    Ok(())
}
