//! Measures offloaded pods against pods of the provider for `cargo xtask bench offload`, and reflected objects against those of the
//! provider for `cargo xtask bench reflect`.
//!
//! The program creates two clusters, installs Liqo and peers them. It prints the samples as JSON. Progress goes to the
//! standard error.

#![forbid(unsafe_code)]

mod admission;
mod bench;
mod clusters;
mod commands;
mod hollow;
mod pods;
mod processes;
mod reflect;
mod requests;
mod rounds;
mod virtual_nodes;
mod watch;

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

    /// Measures this number of reflected objects of each kind instead of pods.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    reflected: Option<u32>,

    /// Keeps the clusters, and uses those of a former run.
    #[arg(long)]
    keep: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    place::use_program(&cli.laboratory)?;
    let samples = block_on(measure(&cli));
    if !cli.keep {
        clusters::remove()?;
        cluster::clear_machine()?;
    }
    println!("{}", samples?);

    Ok(())
}

/// Returns the samples as JSON.
async fn measure(cli: &Cli) -> Result<String> {
    let text = match cli.reflected {
        Some(objects) => serde_json::to_string_pretty(&reflect::run(objects).await?),
        None => serde_json::to_string_pretty(&rounds::run(cli).await?),
    };

    Ok(text?)
}
