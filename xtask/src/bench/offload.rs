//! `cargo xtask bench offload`: measures offloaded pods on two clusters against the same pods directly on the provider.
//!
//! Each round takes both samples directly after one another, in alternating order, because the speed of a shared machine
//! drifts. `bench/offload.md` describes the method and the results.

mod report;

use super::Output;
use super::control_plane;
use super::setting::{self, Checkout};
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{cluster, console, image, liqoctl, setup, test, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use report::{Report, Samples};
use serde::de::DeserializeOwned;
use std::process::Command;
use std::time::Instant;

#[derive(Args, Debug)]
pub(super) struct Offload {
    /// Number of rounds. Each measures a batch of offloaded pods and a batch of the provider's own pods.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Number of pods of a batch.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=200))]
    pods: u32,

    /// Numbers of pods of batches on simulated nodes, on clusters of their own.
    #[arg(
        long,
        default_value = "100,1000",
        value_delimiter = ',',
        value_name = "N"
    )]
    hollow: Vec<u32>,

    /// Keeps the clusters, and uses those of a former run with the images of this checkout.
    #[arg(long)]
    keep: bool,

    /// Fails if a target of `bench/offload.md` is missed.
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
pub(super) fn run(shell: &mut Shell, options: &Offload) -> Result<()> {
    let start = Instant::now();
    let hollow: Vec<_> = options.hollow.iter().map(u32::to_string).collect();
    let arguments = [
        format!("--hollow={}", hollow.join(",")),
        format!("--rounds={}", options.rounds),
        format!("--pods={}", options.pods),
    ];
    let what = "Offloading: pods of a virtual node and pods of its provider";
    let (setting, samples) = measure::<Samples>(shell, what, &arguments, options.keep)?;
    let report = Report::new(setting, samples);

    control_plane::finish(
        &report,
        "cargo xtask bench offload",
        options.output,
        options.check,
        start,
    )
}

/// Builds this checkout, and runs the measuring program on two clusters. Returns the checkout and the samples.
///
/// # Errors
///
/// Returns an error that names the step that failed.
pub(super) fn measure<S: DeserializeOwned>(
    shell: &mut Shell,
    what: &str,
    arguments: &[String],
    keep: bool,
) -> Result<(Checkout, S)> {
    setup::run_for(shell, &[Set::Kubernetes])?;
    // The commit is read before the build, because sources may change during the build.
    let setting = setting::of_checkout(shell)?;
    let program = cluster::program(shell)?;
    let artifacts = cluster::artifacts(shell, &program, &[])?;
    let images = image::build_all(shell)?;
    let liqoctl = liqoctl::released(shell)?;
    let mut measure = Command::new(workspace::program(shell, "offload-bench")?);

    console::step(what);
    let release = test::kubernetes::Release {
        artifacts,
        images,
        liqoctl,
    };
    release.describe_to(&mut measure);
    measure
        .arg("--laboratory")
        .arg(&program)
        .args(arguments)
        .args(keep.then_some("--keep"));
    let output = shell.capture(measure)?;
    if !output.status.success() {
        bail!("the measurement failed: see above");
    }
    let samples = serde_json::from_slice(&output.stdout).context("the samples are malformed")?;

    Ok((setting, samples))
}
