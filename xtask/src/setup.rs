//! `cargo xtask setup`: installs the packages and tools that this machine lacks.
//!
//! [`observe`] reads the state of the machine, [`needs::missing`] plans the installation, and
//! [`install`] executes the plan. A command that needs packages first calls [`run_for`] with its
//! package sets. If nothing is missing, the call takes milliseconds.

pub(crate) mod fuzzer;
pub(crate) mod go;
pub(crate) mod needs;
pub(crate) mod rust;

mod install;
mod observe;

use crate::shell::Shell;
use crate::{console, view};
use anyhow::{Result, bail};
use needs::{Set, Wanted};
use observe::Evidence;
use std::time::Instant;

/// The package sets that `cargo xtask setup` installs. The sets for Kubernetes clusters and images
/// are installed by the first command that needs them.
const COMMON: &[Set] = &[
    Set::Build,
    Set::Unit,
    Set::Laboratory,
    Set::Demo,
    Set::Bench,
    Set::Fuzz,
];

/// Installs the missing packages and tools of all commands that need no Kubernetes cluster.
///
/// # Errors
///
/// Returns the errors of [`run_for`].
pub(crate) fn run(shell: &mut Shell) -> Result<()> {
    run_for(shell, COMMON)
}

/// Installs the missing packages and tools of `sets`, and prints each of them with its purpose.
///
/// # Errors
///
/// Returns an error with the remedy if a package or tool cannot be installed. Inside a [`view`],
/// nothing is installed. There, a missing program means that the set does not declare the
/// program's package.
pub(crate) fn run_for(shell: &mut Shell, sets: &[Set]) -> Result<()> {
    let wanted = Wanted {
        sets,
        on_demand: false,
    };

    complete(shell, wanted, Evidence::Files)
}

/// Installs the declared packages of all sets. A package is also installed if its program exists
/// from another source, because a [`view`] shows only programs of declared packages.
///
/// # Errors
///
/// Returns the errors of [`run_for`].
pub(crate) fn run_for_views(shell: &mut Shell) -> Result<()> {
    let wanted = Wanted {
        sets: Set::ALL,
        on_demand: true,
    };

    complete(shell, wanted, Evidence::Packages)
}

fn complete(shell: &mut Shell, wanted: Wanted<'_>, evidence: Evidence) -> Result<()> {
    console::step("Setup: compilers, and the programs that tests and demo run");
    let start = Instant::now();
    let observed = observe::observe(shell, evidence)?;
    let steps = needs::missing(&observed, wanted);
    for (thing, why) in steps.iter().flat_map(needs::Step::things) {
        console::note(format_args!("missing: {thing} ({why})"));
    }
    if let (false, Some(set)) = (steps.is_empty(), view::current()) {
        bail!("the set `{set}` does not declare these packages: add them in setup/needs.rs");
    }
    if let Some(refusal) = needs::refusal(&steps, &observed) {
        bail!(refusal);
    }
    for step in &steps {
        install::apply(shell, step)?;
    }
    let left = needs::missing(&observe::observe(shell, evidence)?, wanted);
    if let Some((thing, why)) = left.iter().flat_map(needs::Step::things).next() {
        bail!("{thing} ({why}) was installed but is still not found; is its folder in PATH?");
    }

    let outcome = if steps.is_empty() {
        "nothing is missing"
    } else {
        "everything is installed"
    };
    console::done(outcome, start.elapsed());
    Ok(())
}
