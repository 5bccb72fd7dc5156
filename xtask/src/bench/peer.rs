//! `cargo xtask bench peer`: measures a peering without networking: `liqoctl peer`, `unpeer` and `force unpeer` from
//! start to exit, and the requests of a peering.
//!
//! Each duration is also given as a multiple of 20 sequential creations at the same API server in the same round,
//! because the speed of a shared machine drifts. `bench/peer.md` describes the method and the results.

mod report;

use super::Output;
use super::control_plane::{self, Benchmark};
use crate::shell::Shell;
use anyhow::Result;
use clap::Args;
use report::{Report, Sample};
use std::time::Instant;

#[derive(Args, Debug)]
pub(super) struct Peer {
    /// Number of rounds. Each measures each command once.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Prints the requests of each peering that takes longer than this, with their times.
    #[arg(long, value_name = "SECONDS")]
    trace: Option<f64>,

    /// Fails if a target of `bench/peer.md` is missed.
    #[arg(long)]
    check: bool,

    /// The format of the result.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Takes the measurements, prints the result, and writes it to `bench/results`.
///
/// # Errors
///
/// Returns an error that names the step that failed, or with `--check` the number of missed targets.
pub(super) fn run(shell: &mut Shell, options: &Peer) -> Result<()> {
    let start = Instant::now();
    let mut arguments = vec![format!("--rounds={}", options.rounds)];
    arguments.extend(options.trace.map(|seconds| format!("--trace={seconds}")));
    let benchmark = Benchmark {
        program: "peer-bench",
        title: "Peering: two control planes without nodes",
        measured: &[
            ("--manager", "controller-manager"),
            ("--liqoctl", "liqoctl"),
        ],
        arguments,
    };
    let (setting, samples) = benchmark.run::<Vec<Sample>>(shell)?;
    let report = Report::new(setting, samples);

    control_plane::finish(
        &report,
        "cargo xtask bench peer",
        options.output,
        options.check,
        start,
    )
}
