//! `cargo xtask test`: runs the unit tests and the tests in laboratories.

pub(crate) mod kubernetes;
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

#[derive(Args, Debug)]
pub(crate) struct Test {
    /// Disables one mechanism at a time, and expects the test of that mechanism to fail.
    #[arg(long)]
    mutants: bool,

    /// Runs only this suite.
    #[arg(long, value_enum, conflicts_with_all = ["mutants", "kubernetes"])]
    only: Option<Suite>,

    /// Runs the tests on Kubernetes clusters instead of the other suites.
    #[arg(long, conflicts_with = "mutants")]
    kubernetes: bool,

    /// With --kubernetes: leaves out the tests that take long, as CI does. The others take 20 minutes.
    #[arg(long, requires = "kubernetes")]
    quick: bool,

    /// With --kubernetes: runs N times each test that measures interruptions of streams, and prints
    /// the longest interruptions.
    #[arg(long, requires = "kubernetes", value_name = "N", default_value_t = 1)]
    repeat: u32,

    /// Runs only tests whose names contain this text.
    filter: Option<String>,
}

/// The suites that need no Kubernetes cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Suite {
    /// Unit tests, which need no network namespace.
    Unit,
    /// Integration tests in network namespaces.
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

/// Number of laboratories that run at the same time. The tests measure interruptions, so
/// laboratories must not compete for a processor.
const LABORATORIES: &str = "1";

/// The environment variable that names the folder of the gateway and route agent under test.
pub(crate) const BINARIES: &str = "LIQO_BIN_DIR";

/// Runs the selected suites.
///
/// # Errors
///
/// Returns an error if a test fails, or if a test leaves state on the machine.
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
    // Laboratories are also removed after a failure, because a killed test cannot clean up.
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

/// Builds gateway and route agent with the flags of a release.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn build(shell: &mut Shell) -> Result<()> {
    let selection = Selection {
        packages: &image::RELEASED,
        // The controller manager is not needed, and takes a quarter of the build's processor time.
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
    // The tests in laboratories have `test = false` in their manifests, so they are not among these.
    let mut units = workspace::cargo(&["test", "--locked", "--workspace"]);
    units.args(filter);

    shell.run(units)
}

fn remove_crashed() -> Result<()> {
    for id in leftovers::remove_crashed()? {
        console::note(format_args!("removed laboratory {id}, whose owner crashed"));
    }

    Ok(())
}
