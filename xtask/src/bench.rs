//! `cargo xtask bench`: our tunnel and our complete path, side by side with others' tunnels.
//!
//! All are measured in the same run and in interleaved rounds, because the speed
//! of a shared machine drifts: the ratio within a round is worth more than any
//! absolute number. Method and targets: `bench/README.md`.

mod cable;
mod compare;
mod ends;
mod fabric;
mod gateways;
mod handshakes;
mod iperf;
mod ladder;
mod markdown;
mod measure;
mod metric;
mod nebula;
mod packets;
mod peers;
mod ping;
mod plan;
mod plot;
mod process;
mod results;
mod run;
mod setting;
mod stats;
mod superpackets;
mod table;
mod targets;
mod tcp_counters;
mod wireguard;

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

/// What to measure.
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Option<Command>,

    /// How often each measurement is repeated.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long one measurement takes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Takes only these measurements; can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,

    /// Measures only these tunnels, for instance one beside a profiler; can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    tunnel: Vec<Tunnel>,

    /// Measures only over these networks; can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    underlay: Vec<Underlay>,

    /// The wireguard-go to compare with; by default the newest, which is built.
    #[arg(long, value_name = "PROGRAM")]
    wireguard_go: Option<String>,

    /// Takes two short rounds of what the targets ask for, within five minutes.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Fails if a target is missed, see `bench/README.md`.
    #[arg(long)]
    check: bool,

    /// Measures the processes as they were built before; keeps no result, since
    /// nobody knows of which commit it would be.
    #[arg(long)]
    no_build: bool,

    /// How to print the result.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tells what changed between two kept results, beyond their spread.
    Compare(Compare),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For machines: what is written to `bench/results`, too.
    Json,
    /// For documents.
    Markdown,
}

/// Measures, prints the result and keeps it in `bench/results`.
///
/// # Errors
///
/// Returns an error that names the step that failed, or the targets that were
/// missed if that was asked for.
pub(crate) fn run(shell: &mut Shell, options: &Bench) -> Result<()> {
    if let Some(Command::Compare(results)) = &options.command {
        anstream::print!("{}", compare::run(results)?);
        return Ok(());
    }

    let start = Instant::now();
    setup::run(shell)?;
    // Whoever names binaries wants those measured.
    let builds = !options.no_build && env::var_os(test::BINARIES).is_none();
    let plan = Plan::of(options, builds);
    let programs = peers::find(shell, &plan.tunnels, options.wireguard_go.as_deref())?;
    // Before the build, since that is the moment whose sources are measured.
    let setting = setting::observe(shell, &programs, plan.rounds, plan.seconds)?;
    if builds && plan.tunnels.iter().any(|tunnel| tunnel.is_ours()) {
        test::build(shell)?;
    }
    leftovers::remove_crashed()?;
    let before = leftovers::observe(shell)?;
    // From here on a signal takes the laboratories down and ends this process.
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
            "others used the machine before {disturbed} of {} measurements: \
             judge by the ratios, and by their range",
            report.samples.len()
        ));
    }
}

/// Writes the result for machines, for readers, and as a picture.
fn keep(report: &Report) -> Result<()> {
    let date = report.setting.date.get(..10).unwrap_or("undated");
    let name = format!("{date}-{}", report.setting.commit);
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
