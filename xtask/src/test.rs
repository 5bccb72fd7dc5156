//! `cargo xtask test`: every behaviour, with real traffic, and no trace left.

mod kubernetes;
mod laboratory;
mod repeat;

use crate::image::{self, Processor};
use crate::shell::Shell;
use crate::{console, leftovers, mutants, setup, workspace};
use anyhow::{Result, bail};
use clap::Args;
use std::time::Instant;

/// What to test.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Switches off one mechanism after the other and expects a test to notice.
    #[arg(long)]
    mutants: bool,

    /// Runs the tests on real Kubernetes clusters instead.
    #[arg(long, conflicts_with = "mutants")]
    kubernetes: bool,

    /// With --kubernetes: only what every change must pass, in two minutes.
    #[arg(long, requires = "kubernetes")]
    quick: bool,

    /// With --kubernetes: how often each test of streams that survive is repeated; the
    /// largest figures are told.
    #[arg(long, requires = "kubernetes", value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// Runs only what has this in its name.
    filter: Option<String>,
}

impl Test {
    /// All tests that need no cluster, without mutants.
    pub(crate) const ALL: Self = Self {
        mutants: false,
        kubernetes: false,
        quick: false,
        repeat: 1,
        filter: None,
    };

    /// What every change must pass on clusters.
    pub(crate) const QUICK: Self = Self {
        kubernetes: true,
        quick: true,
        ..Self::ALL
    };
}

/// How many laboratories may run at once: they measure gaps in time, so they must
/// not wait for each other's processor.
const LABORATORIES: &str = "1";

/// Tells the laboratory where the processes to run are.
pub(crate) const BINARIES: &str = "LIQO_BIN_DIR";

/// Runs the tests.
///
/// # Errors
///
/// Returns an error if a test fails or if something is left on the machine.
pub(crate) fn run(shell: &mut Shell, options: &Test) -> Result<()> {
    let start = Instant::now();
    if options.kubernetes {
        setup::run_for_clusters(shell)?;
        return kubernetes::run(shell, options);
    }
    setup::run(shell)?;
    remove_crashed()?;
    let before = leftovers::observe(shell)?;

    let outcome = if options.mutants {
        mutants::run(shell, options.filter.as_deref())
    } else {
        build(shell).and_then(|()| suites(shell, options.filter.as_deref()))
    };
    // Also after a failure: a test that was killed could not clean up.
    remove_crashed()?;
    outcome?;
    let left = leftovers::since(shell, &before)?;
    if !left.is_empty() {
        bail!("the tests left on this machine: {}", left.join(", "));
    }

    console::step("All tests passed, and nothing is left on this machine");
    console::done("cargo xtask test", start.elapsed());
    Ok(())
}

/// Builds the processes as they are shipped: what is tested is what runs.
///
/// # Errors
///
/// Returns an error if they do not build.
pub(crate) fn build(shell: &mut Shell) -> Result<()> {
    // All that is shipped: for fewer, cargo would choose other features, and build twice.
    image::build::binaries(shell, Processor::machine()?, &image::packages(), "").map(drop)
}

fn suites(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    let start = Instant::now();
    console::step("Tests beside the code");
    let mut units = workspace::cargo(&["test", "--locked", "--workspace", "--exclude", "tests"]);
    units.args(["--exclude", "kubernetes-lab"]).args(filter);
    shell.run(units)?;
    // Their other tests need a laboratory each.
    let mut laboratories = workspace::cargo(&["test", "--locked", "--lib", "--bins"]);
    laboratories
        .args(["--package", "tests", "--package", "kubernetes-lab"])
        .args(filter);
    shell.run(laboratories)?;
    console::done("tests beside the code", start.elapsed());

    let start = Instant::now();
    console::step("Laboratory: real traffic between clusters in network namespaces");
    laboratory::run(shell, filter)?;
    console::done("laboratory", start.elapsed());

    Ok(())
}

fn remove_crashed() -> Result<()> {
    for id in leftovers::remove_crashed()? {
        console::note(format_args!("removed laboratory {id}, whose owner crashed"));
    }

    Ok(())
}
