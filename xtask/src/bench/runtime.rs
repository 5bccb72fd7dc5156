//! `cargo xtask bench runtime`: measures the control runtime with many watched objects: memory, CPU
//! time per change, time until the cache is complete, and connections.
//!
//! The measured processes are release binaries. The API server and the generator of objects are other
//! processes. `bench/runtime.md` describes the method and the results.

mod report;

use super::{Output, setting};
use crate::image::build::Selection;
use crate::image::{self, Processor};
use crate::setup;
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{cluster, console, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use report::{Report, Samples};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
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
    setup::run_for(shell, &[Set::Kubernetes])?;
    // The commit is read before the build, because sources may change during the build.
    let setting = setting::of_checkout(shell)?;
    let binaries = programs(shell)?;
    let bench = bench(shell)?;
    let program = cluster::program(shell)?;
    let artifacts = cluster::artifacts(shell, &program)?;

    console::step("Control runtime: 100 tenants, 5,000 pods, 20,000 EndpointSlices");
    let mut command = Command::new(bench);
    command
        .arg(format!("--rounds={}", options.rounds))
        .arg(format!("--changes={}", options.changes))
        .arg("--follower")
        .arg(binaries.join("follower"))
        .arg("--manager")
        .arg(binaries.join("controller-manager"))
        .arg("--chart")
        .arg(workspace::root().join("charts/liqo"))
        .arg("--artifacts")
        .arg(artifacts);
    let output = shell.capture(command)?;
    if !output.status.success() {
        bail!("the measurement failed: see above");
    }
    let samples: Samples =
        serde_json::from_slice(&output.stdout).context("the samples are malformed")?;
    let report = Report::new(setting, samples);

    let document = report.markdown();
    match options.output {
        Output::Table => anstream::println!("{}", report.table()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
        Output::Markdown => println!("{document}"),
    }
    keep(&report, &document)?;
    console::done("cargo xtask bench runtime", start.elapsed());
    let missed = report.targets.iter().filter(|it| !it.pass).count();
    if options.check && missed > 0 {
        bail!("{missed} of {} targets missed", report.targets.len());
    }

    Ok(())
}

/// Builds the measured programs with the flags of a release, and returns their folder.
fn programs(shell: &mut Shell) -> Result<PathBuf> {
    // With fewer packages, cargo would select other features of dependencies than for the images.
    let mut packages = image::packages().to_vec();
    packages.push("follower");
    let selection = Selection {
        packages: &packages,
        programs: &["controller-manager", "follower"],
        ..Selection::default()
    };

    image::build::binaries(shell, Processor::machine()?, selection)
}

/// Builds the program that measures, and returns its path.
fn bench(shell: &mut Shell) -> Result<PathBuf> {
    let mut build = workspace::cargo(&["build", "--locked", "--package", "kubernetes-lab"]);
    build.args(["--bin", "runtime-bench"]);
    shell.run(build)?;

    Ok(workspace::target().join("debug").join("runtime-bench"))
}

/// Writes the result to `bench/results` as JSON and Markdown.
fn keep(report: &Report, document: &str) -> Result<()> {
    let folder = workspace::root().join("bench/results");
    let mut json = serde_json::to_string_pretty(report)?;
    json.push('\n');
    for (suffix, text) in [("json", json.as_str()), ("md", document)] {
        let path = folder.join(format!("{}.{suffix}", report.name()));
        write(&path, text)?;
        console::note(format_args!("written to {}", path.display()));
    }

    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
