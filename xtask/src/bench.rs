//! `cargo xtask bench`: the complete path, side by side with `wireguard-go`.
//!
//! Both sides are measured in the same run and in interleaved rounds, because
//! the speed of a shared machine drifts: the ratio within a round is worth more
//! than any absolute number. Method and targets: `bench/README.md`.

use crate::shell::Shell;
use anyhow::Result;
use clap::Args;

/// What to measure.
#[derive(Args, Debug)]
pub(crate) struct Bench {
    /// How often each measurement is repeated.
    #[arg(long, default_value_t = 5)]
    rounds: u32,

    /// How long one measurement takes.
    #[arg(long, default_value_t = 4)]
    seconds: u32,

    /// Measures two short rounds, to see that everything works.
    #[arg(long)]
    quick: bool,

    /// Fails if a threshold of the data plane is missed.
    #[arg(long)]
    check: bool,
}

/// Measures and prints the table.
///
/// # Errors
///
/// Returns an error that names the step that failed.
pub(crate) fn run(_shell: &mut Shell, _options: &Bench) -> Result<()> {
    anyhow::bail!("the bench is not ready to measure");
}
