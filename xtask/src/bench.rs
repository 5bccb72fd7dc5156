//! `cargo xtask bench`: measures this project's tunnel between two gateways and its complete path
//! between two pods. Compares both with the tunnels of other projects.
//!
//! Each round measures all tunnels directly after one another. The speed of a shared machine
//! drifts, so ratios within a round are more reliable than absolute numbers. `bench/README.md`
//! describes the method and the targets.

mod cable;
mod compare;
mod control_plane;
mod ends;
mod fabric;
mod gateways;
mod handshakes;
mod iperf;
mod limits;
mod markdown;
mod measure;
mod metric;
mod nebula;
mod offload;
mod packets;
mod peer;
mod ping;
mod plan;
mod plot;
mod process;
mod programs;
mod rate_search;
mod receives;
mod reflect;
mod results;
mod run;
mod runtime;
mod setting;
mod stats;
mod superpackets;
mod table;
mod targets;
mod tcp_counters;
mod wireguard;

use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, leftovers, setup, test, workspace};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use compare::Compare;
use metric::{Measurement, Sample, Tunnel, Underlay};
use plan::Plan;
use results::Report;
use std::env;
use std::fs;
use std::time::Instant;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Option<Command>,

    /// Number of times that each repeated measurement is taken.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// The duration of one measurement, in seconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Takes only these measurements. The option can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,

    /// Measures only these tunnels, for instance one under a profiler. The option can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    tunnel: Vec<Tunnel>,

    /// Measures only over these kinds of networks. The option can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    underlay: Vec<Underlay>,

    /// The wireguard-go program to compare with [default: builds the newest version].
    #[arg(long, value_name = "PROGRAM")]
    wireguard_go: Option<String>,

    /// Takes only the measurements that have a target, in two short rounds. This takes less than
    /// five minutes.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Fails if a target of `bench/README.md` is missed.
    #[arg(long)]
    check: bool,

    /// Measures the binaries of the last build instead of building them. Writes no result to
    /// `bench/results`, because the commit of that build is unknown.
    #[arg(long)]
    no_build: bool,

    /// The format of the result.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Compares two stored results, and lists the numbers that changed by more than their spread
    /// over the rounds.
    Compare(Compare),
    /// Measures offloaded pods against pods of the provider: durations, requests, CPU time and memory.
    Offload(offload::Offload),
    /// Measures the durations and requests of peering and unpeering without networking.
    Peer(peer::Peer),
    /// Measures objects that are reflected to a provider against objects that are created there.
    Reflect(reflect::Reflect),
    /// Measures memory, CPU time and connections of the control runtime with 25,000 watched objects.
    Runtime(runtime::Runtime),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// A table for terminals.
    Table,
    /// The JSON document that is also written to `bench/results`.
    Json,
    /// The Markdown document that is also written to `bench/results`.
    Markdown,
}

/// Takes the measurements and prints the result. A complete run also writes the result to
/// `bench/results`.
///
/// # Errors
///
/// Returns an error that names the step that failed, or with `--check` the missed targets.
pub(crate) fn run(shell: &mut Shell, options: &Bench) -> Result<()> {
    match &options.command {
        Some(Command::Compare(results)) => {
            anstream::print!("{}", compare::run(results)?);
            return Ok(());
        }
        Some(Command::Offload(options)) => return offload::run(shell, options),
        Some(Command::Peer(options)) => return peer::run(shell, options),
        Some(Command::Reflect(options)) => return reflect::run(shell, options),
        Some(Command::Runtime(options)) => return runtime::run(shell, options),
        None => {}
    }

    let start = Instant::now();
    setup::run_for(shell, &[Set::Bench])?;
    // `LIQO_BIN_DIR` can name a folder of binaries, which are then measured instead of a new build.
    let builds = !options.no_build && env::var_os(test::BINARIES).is_none();
    let plan = Plan::of(options, builds);
    let programs = programs::find(shell, &plan.tunnels, options.wireguard_go.as_deref())?;
    // The commit is read before the build, because sources may change during the build.
    let setting = setting::observe(shell, &programs, plan.rounds, plan.seconds)?;
    if builds && plan.tunnels.iter().any(|tunnel| tunnel.is_ours()) {
        test::build(shell)?;
    }
    leftovers::remove_crashed()?;
    let before = leftovers::observe(shell)?;
    // From now on, a signal handler removes the laboratories before this process ends.
    ::tests::lab::clean_on_signal()?;

    let measured = run::measure_all(&plan, &programs)?;
    let summary = results::rows(&measured.samples);
    let report = Report {
        setting,
        targets: targets::judge(&summary),
        summary,
        super_packets: measured.super_packets,
        samples: measured.samples,
    };

    match options.output {
        Output::Table => anstream::println!("{}", table::render(&report)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Markdown => println!("{}", markdown::render(&report, None)),
    }
    if plan.is_complete {
        keep(&report)?;
    }
    warn_if_disturbed(&report);
    let left = leftovers::since(shell, &before)?;
    if !left.is_empty() {
        bail!("the bench left on this machine: {}", left.join(", "));
    }
    console::done("cargo xtask bench", start.elapsed());
    let missed = report.targets.iter().filter(|it| !it.pass).count();
    if options.check && missed > 0 {
        bail!("{missed} of {} targets missed", report.targets.len());
    }

    Ok(())
}

fn warn_if_disturbed(report: &Report) {
    let busy = |sample: &&Sample| {
        sample
            .values
            .get(metric::OTHERS)
            .is_some_and(|cores| *cores > measure::QUIET_CORES)
    };
    let disturbed = report.samples.iter().filter(busy).count();
    if disturbed > 0 {
        console::note(format_args!(
            "other processes used the machine before {disturbed} of {} measurements: \
             compare the ratios and their ranges",
            report.samples.len()
        ));
    }
}

/// Writes the result to `bench/results` as JSON, Markdown and SVG.
fn keep(report: &Report) -> Result<()> {
    let date = report.setting.checkout.date.get(..10).unwrap_or("undated");
    let name = format!("{date}-{}", report.setting.checkout.commit);
    let folder = workspace::root().join("bench/results");
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    let picture = format!("{name}.svg");

    fs::create_dir_all(&folder)
        .with_context(|| format!("failed to create {}", folder.display()))?;
    for (file, text) in [
        (format!("{name}.json"), json),
        (
            format!("{name}.md"),
            markdown::render(report, Some(&picture)),
        ),
        (picture, plot::render(&report.summary)),
    ] {
        let path = folder.join(file);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        console::note(format_args!("written to {}", path.display()));
    }
    Ok(())
}
