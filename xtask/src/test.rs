//! `cargo xtask test`: the tests beside the code and those in laboratories.

mod kubernetes;
mod laboratory;
mod repeat;

use crate::image::build::Selection;
use crate::image::{self, Processor};
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, leftovers, mutants, setup, workspace};
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use std::time::Instant;

/// Which tests to run.
#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Disables one mechanism after the other and expects a test to fail.
    #[arg(long)]
    mutants: bool,

    /// Runs only this suite.
    #[arg(long, value_enum, conflicts_with_all = ["mutants", "kubernetes"])]
    only: Option<Suite>,

    /// Runs the tests on real Kubernetes clusters instead.
    #[arg(long, conflicts_with = "mutants")]
    kubernetes: bool,

    /// With --kubernetes: runs only the tests that CI runs, which take two minutes.
    #[arg(long, requires = "kubernetes")]
    quick: bool,

    /// With --kubernetes: how often each test of surviving streams is repeated; the
    /// largest figures are printed.
    #[arg(long, requires = "kubernetes", value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// Runs only tests whose names contain this.
    filter: Option<String>,
}

/// The suites that need no cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// The tests beside the code.
    Unit,
    /// The tests in network namespaces.
    Laboratory,
}

impl Suite {
    fn set(self) -> Set {
        match self {
            Self::Unit => Set::Unit,
            Self::Laboratory => Set::Laboratory,
        }
    }
}

/// How many laboratories run at once. They measure gaps in time, so they must not compete
/// for a processor.
const LABORATORIES: &str = "1";

/// Names the folder of the laboratory's gateway and route agent.
pub(crate) const BINARIES: &str = "LIQO_BIN_DIR";

/// Runs the tests.
///
/// # Errors
///
/// Returns an error if a test fails or if something is left on the machine.
pub(crate) fn run(shell: &mut Shell, options: &Test) -> Result<()> {
    let start = Instant::now();
    if options.kubernetes {
        setup::run_for(shell, &[Set::Kubernetes])?;
        return kubernetes::run(shell, options);
    }
    let suites = match options.only {
        Some(only) => vec![only],
        None => vec![Suite::Unit, Suite::Laboratory],
    };
    let sets: Vec<_> = suites.iter().map(|suite| suite.set()).collect();
    setup::run_for(shell, &sets)?;
    remove_crashed()?;
    let before = leftovers::observe(shell)?;

    let outcome = if options.mutants {
        mutants::run(shell, options.filter.as_deref())
    } else {
        run_suites(shell, &suites, options.filter.as_deref())
    };
    // Also after a failure: a test that was killed has not cleaned up.
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

/// Builds the processes that run in network namespaces, as they are shipped.
///
/// # Errors
///
/// Returns an error if they do not build.
pub(crate) fn build(shell: &mut Shell) -> Result<()> {
    let selection = Selection {
        // All: for fewer, cargo would choose other features of dependencies, and build
        // these a second time for the images.
        packages: &image::packages(),
        // The controller manager alone takes a quarter of the build's processor time.
        programs: &["gateway", "route-agent"],
        ..Selection::default()
    };

    image::build::binaries(shell, Processor::machine()?, selection).map(drop)
}

fn run_suites(shell: &mut Shell, suites: &[Suite], filter: Option<&str>) -> Result<()> {
    for suite in suites {
        match suite {
            Suite::Unit => {
                let start = Instant::now();
                console::step("Tests beside the code");
                unit(shell, filter)?;
                console::done("tests beside the code", start.elapsed());
            }
            Suite::Laboratory => {
                build(shell)?;
                let start = Instant::now();
                console::step("Laboratory: real traffic between clusters in network namespaces");
                laboratory::run(shell, filter)?;
                console::done("laboratory", start.elapsed());
            }
        }
    }

    Ok(())
}

fn unit(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    let mut units = workspace::cargo(&["test", "--locked", "--workspace", "--exclude", "tests"]);
    units.args(["--exclude", "kubernetes-lab"]).args(filter);
    shell.run(units)?;
    // The test programs of these two need laboratories, so only their libraries are tested.
    let mut laboratories = workspace::cargo(&["test", "--locked", "--lib", "--bins"]);
    laboratories
        .args(["--package", "tests", "--package", "kubernetes-lab"])
        .args(filter);

    shell.run(laboratories)
}

fn remove_crashed() -> Result<()> {
    for id in leftovers::remove_crashed()? {
        console::note(format_args!("removed laboratory {id}, whose owner crashed"));
    }

    Ok(())
}
