//! `cargo xtask bench runtime`: measures the control runtime with many watched objects: memory, CPU
//! time per change, time until the cache is complete, and connections.
//!
//! The measured processes are release binaries. The API server and the generator of objects are other
//! processes. `bench/runtime.md` describes the method and the results.

mod report;

use super::Output;
use super::control_plane::{self, Benchmark};
use crate::shell::Shell;
use anyhow::Result;
use clap::Args;
use report::{Report, Samples};
use std::time::Instant;

#[derive(Args, Debug)]
pub(super) struct Runtime {
    /// Number of times that each process is started and measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Number of changes of which the CPU time is measured.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,

    /// Fails if a target of `bench/runtime.md` is missed.
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
/// Returns an error that names the step that failed, or with `--check` the missed targets.
pub(super) fn run(shell: &mut Shell, options: &Runtime) -> Result<()> {
    let start = Instant::now();
    let benchmark = Benchmark {
        program: "runtime-bench",
        title: "Control runtime: 100 tenants, 5,000 pods, 20,000 EndpointSlices",
        measured: &[
            ("--follower", "follower"),
            ("--manager", "controller-manager"),
        ],
        arguments: vec![
            format!("--rounds={}", options.rounds),
            format!("--changes={}", options.changes),
        ],
    };
    let (setting, samples) = benchmark.run::<Samples>(shell)?;
    let report = Report::new(setting, samples);

    control_plane::finish(
        &report,
        "cargo xtask bench runtime",
        options.output,
        options.check,
        start,
    )
}
