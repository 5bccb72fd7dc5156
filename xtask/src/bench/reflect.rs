//! `cargo xtask bench reflect`: measures objects of a consumer that are reflected to its provider against objects that are
//! created there.
//!
//! `bench/reflect.md` describes the method and the results.

mod report;

use super::control_plane;
use super::{Output, offload};
use crate::shell::Shell;
use anyhow::Result;
use clap::Args;
use report::{Report, Samples};
use std::time::Instant;

#[derive(Args, Debug)]
pub(super) struct Reflect {
    /// Number of objects of each kind.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    objects: u32,

    /// Keeps the clusters, and uses those of a former run with the images of this checkout.
    #[arg(long)]
    keep: bool,

    /// Fails if a target of `bench/reflect.md` is missed.
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
pub(super) fn run(shell: &mut Shell, options: &Reflect) -> Result<()> {
    let start = Instant::now();
    let what = "Reflection: objects at the provider, reflected and created there";
    let arguments = [
        "--rounds=1".to_owned(),
        "--pods=1".to_owned(),
        format!("--reflected={}", options.objects),
    ];
    let (setting, samples) = offload::measure::<Samples>(shell, what, &arguments, options.keep)?;
    let report = Report::new(setting, samples);

    control_plane::finish(
        &report,
        "cargo xtask bench reflect",
        options.output,
        options.check,
        start,
    )
}
