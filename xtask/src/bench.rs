//! `cargo xtask bench`: the complete path, side by side with `wireguard-go`.
//!
//! Both are measured in the same run and in interleaved rounds, because the speed
//! of a shared machine drifts: the ratio within a round is worth more than any
//! absolute number. Method and targets: `bench/README.md`.

mod ends;
mod fabric;
mod iperf;
mod measure;
mod metric;
mod ping;
mod process;
mod results;
mod setting;
mod stats;
mod superpackets;
mod table;
mod thresholds;
mod wireguard;
mod yardstick;

use crate::shell::Shell;
use crate::{console, leftovers, setup, test, workspace};
use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use ends::Ends;
use fabric::Fabric;
use measure::Values;
use metric::{Measurement, Sample, Tunnel};
use results::{Report, Setting};
use std::env;
use std::fs;
use std::time::{Duration, Instant};
use superpackets::{Histogram, SuperPackets};
use wireguard::WireguardGo;

/// What to measure.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// How often each measurement is repeated.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// How long one measurement takes.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Takes only these measurements; can be repeated.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measurement>,

    /// Measures one of the two alone, for instance beside a profiler.
    #[arg(long, value_enum)]
    tunnel: Option<Tunnel>,

    /// The wireguard-go to compare with; by default the newest, which is built.
    #[arg(long, value_name = "PROGRAM")]
    wireguard_go: Option<String>,

    /// Takes two short rounds, to see that everything works.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,

    /// Fails if a threshold is missed: throughput against wireguard-go, memory,
    /// idle processor time.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// For machines: what is written to `bench/results`, too.
    Json,
}

/// Measures, prints the result and keeps it in `bench/results`.
///
/// # Errors
///
/// Returns an error that names the step that failed, or the thresholds that were
/// missed if that was asked for.
pub(crate) fn run(shell: &mut Shell, options: &Bench) -> Result<()> {
    let start = Instant::now();
    setup::run(shell)?;
    // Whoever names binaries wants those measured.
    let builds = !options.no_build && env::var_os(test::BINARIES).is_none();
    let plan = Plan::of(options, builds);
    // Before the build, since that is the moment whose sources are measured.
    let wireguard_go = yardstick::choose(shell, options.wireguard_go.as_deref())?;
    let setting = setting::observe(shell, &wireguard_go, plan.rounds, plan.seconds)?;
    if options.wants(Tunnel::Fabric) && builds {
        test::build(shell)?;
    }
    leftovers::remove_crashed()?;
    let before = leftovers::observe(shell)?;
    // From here on a signal takes the laboratories down and ends this process.
    ::tests::lab::clean_on_signal()?;

    let report = measure_all(&plan, options, &wireguard_go.program, setting)?;

    match options.output {
        Output::Table => anstream::println!("{}", table::render(&report)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
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
    let missed = report.thresholds.iter().filter(|it| !it.pass).count();
    if options.check && missed > 0 {
        bail!("{missed} of {} thresholds missed", report.thresholds.len());
    }

    Ok(())
}

impl Bench {
    fn wants(&self, tunnel: Tunnel) -> bool {
        self.tunnel.is_none_or(|only| only == tunnel)
    }
}

/// What is done, and how long.
#[derive(Debug)]
struct Plan {
    rounds: u32,
    seconds: u32,
    measurements: Vec<Measurement>,
    /// Whether the result is one to keep.
    is_complete: bool,
}

impl Plan {
    fn of(options: &Bench, builds: bool) -> Self {
        let (rounds, seconds) = if options.quick {
            (2, 1)
        } else {
            (options.rounds, options.seconds)
        };
        let wanted = |measurement: &Measurement| {
            options.only.is_empty() || options.only.contains(measurement)
        };

        Self {
            rounds,
            seconds,
            measurements: Measurement::value_variants()
                .iter()
                .copied()
                .filter(wanted)
                .collect(),
            is_complete: builds
                && !options.quick
                && options.only.is_empty()
                && options.tunnel.is_none(),
        }
    }

    /// How long to wait for a machine that others use.
    fn patience(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds) * 2)
    }

    /// Longer than a measurement, since the kernel counts in steps of 10 ms.
    fn idle_window(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds) * 5)
    }
}

fn measure_all(
    plan: &Plan,
    options: &Bench,
    wireguard_go: &str,
    setting: Setting,
) -> Result<Report> {
    console::step("Setting the tunnels up");
    let fabric = options
        .wants(Tunnel::Fabric)
        .then(Fabric::start)
        .transpose()
        .context("failed to set up the fabric")?;
    let wireguard_go = options
        .wants(Tunnel::WireguardGo)
        .then(|| WireguardGo::start(wireguard_go))
        .transpose()
        .context("failed to set up wireguard-go")?;
    let tunnels: Vec<&Ends> = fabric
        .iter()
        .map(|fabric| &fabric.ends)
        .chain(wireguard_go.iter().map(|tunnel| &tunnel.ends))
        .collect();

    let mut samples = one(plan, &tunnels, Measurement::Start, 0)?;
    let mut super_packets = SuperPackets::default();
    for round in 1..=plan.rounds {
        console::step(format_args!("Round {round} of {}", plan.rounds));
        for &measurement in plan.measurements.iter().filter(|it| it.is_repeated()) {
            let before = counted(fabric.as_ref(), measurement)?;
            samples.extend(one(plan, &tunnels, measurement, round)?);
            if let (Some(before), Some(after)) = (before, counted(fabric.as_ref(), measurement)?) {
                super_packets.add_growth(&before, &after);
            }
            tell(&samples, measurement, round);
        }
    }
    if plan.measurements.contains(&Measurement::Idle) {
        samples.extend(idle(plan, &tunnels)?);
    }
    if plan.measurements.contains(&Measurement::Memory) {
        samples.extend(one(plan, &tunnels, Measurement::Memory, 0)?);
    }

    let summary = results::rows(&samples);
    Ok(Report {
        setting,
        thresholds: thresholds::judge(&summary),
        summary,
        super_packets: super_packets.into_named(),
        samples,
    })
}

/// Takes one measurement of each tunnel, right after each other.
fn one(
    plan: &Plan,
    tunnels: &[&Ends],
    measurement: Measurement,
    round: u32,
) -> Result<Vec<Sample>> {
    let mut order = tunnels.to_vec();
    // Whoever comes second may find warmer caches, or a slower machine.
    if round.is_multiple_of(2) {
        order.reverse();
    }

    order
        .into_iter()
        .map(|ends| {
            let busy = measure::quiet(plan.patience())?;
            let mut values =
                measure::measure(ends, measurement, plan.seconds).with_context(|| {
                    format!(
                        "failed to measure {} of {} in round {round}",
                        measurement.name(),
                        ends.tunnel.name()
                    )
                })?;
            values.insert(metric::OTHERS, busy);
            Ok(sample(round, ends, measurement, values))
        })
        .collect()
}

fn idle(plan: &Plan, tunnels: &[&Ends]) -> Result<Vec<Sample>> {
    let window = plan.idle_window();
    console::step(format_args!(
        "Nothing at all, for {}",
        console::seconds(window)
    ));
    measure::quiet(plan.patience())?;
    let values = measure::idle(tunnels, window).context("failed to measure idle gateways")?;

    Ok(tunnels
        .iter()
        .zip(values)
        .map(|(ends, values)| sample(0, ends, Measurement::Idle, values))
        .collect())
}

fn sample(round: u32, ends: &Ends, measurement: Measurement, values: Values) -> Sample {
    Sample {
        round,
        tunnel: ends.tunnel,
        measurement,
        values,
    }
}

/// The sizes counted so far, where they count: during TCP x1.
fn counted(fabric: Option<&Fabric>, measurement: Measurement) -> Result<Option<[Histogram; 2]>> {
    match (fabric, measurement) {
        (Some(fabric), Measurement::TcpX1) => fabric.super_packets().map(Some),
        _ => Ok(None),
    }
}

fn tell(samples: &[Sample], measurement: Measurement, round: u32) {
    let of_round: Vec<Sample> = samples
        .iter()
        .filter(|sample| sample.round == round && sample.measurement == measurement)
        .cloned()
        .collect();
    if let Some(row) = results::rows(&of_round).first() {
        console::note(format_args!(
            "{:<12} {}",
            measurement.name(),
            table::brief(row)
        ));
    }
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

fn keep(report: &Report) -> Result<()> {
    let date = report.setting.date.get(..10).unwrap_or("undated");
    let name = format!("{date}-{}.json", report.setting.commit);
    let path = workspace::root().join("bench/results").join(name);
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');

    fs::create_dir_all(path.parent().context("the file has a folder")?)
        .and_then(|()| fs::write(&path, json))
        .with_context(|| format!("failed to write {}", path.display()))?;
    console::note(format_args!("written to {}", path.display()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn only_a_complete_run_is_kept() {
        assert!(plan(&[]).is_complete);
        assert!(plan(&["--rounds", "9"]).is_complete);
        assert!(!plan(&["--quick"]).is_complete);
        assert!(!plan(&["--only", "tcp-x1"]).is_complete);
        assert!(!plan(&["--tunnel", "fabric"]).is_complete);
        assert!(!Plan::of(&options(&[]), false).is_complete);
    }

    #[test]
    fn measurements_can_be_chosen() {
        let plan = plan(&["--only", "memory,tcp-x4", "--only", "udp64"]);

        assert_eq!(
            plan.measurements,
            [Measurement::TcpX4, Measurement::Udp64, Measurement::Memory]
        );
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        bench: Bench,
    }

    fn plan(arguments: &[&str]) -> Plan {
        Plan::of(&options(arguments), true)
    }

    fn options(arguments: &[&str]) -> Bench {
        Line::parse_from([&["bench"], arguments].concat()).bench
    }
}
