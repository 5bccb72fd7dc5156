//! `cargo xtask setup`: installs what this machine lacks.
//!
//! Observe, plan, apply: [`observe`] looks, [`needs::missing`] decides, and
//! [`install`] acts. With nothing missing it takes milliseconds, so the other
//! commands call it first.

pub(crate) mod go;
pub(crate) mod rust;

mod install;
mod needs;
mod observe;

use crate::console;
use crate::shell::Shell;
use anyhow::{Result, bail};
use std::time::Instant;

/// Installs what is missing, naming each thing and its purpose.
///
/// # Errors
///
/// Returns an error that tells the cure if something cannot be installed here.
pub(crate) fn run(shell: &mut Shell) -> Result<()> {
    console::step("Setup: what the eBPF build and the laboratory need");
    complete(shell, false)
}

/// Installs what is missing, also for clusters of real Kubernetes.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_for_clusters(shell: &mut Shell) -> Result<()> {
    console::step("Setup: what the eBPF build, the laboratory and its clusters need");
    complete(shell, true)
}

fn complete(shell: &mut Shell, clusters: bool) -> Result<()> {
    let start = Instant::now();
    let observed = observe::observe(shell, clusters)?;
    let steps = needs::missing(&observed);
    for (thing, why) in steps.iter().flat_map(needs::Step::things) {
        console::note(format_args!("missing: {thing} ({why})"));
    }
    if let Some(refusal) = needs::refusal(&steps, &observed) {
        bail!(refusal);
    }
    for step in &steps {
        install::apply(shell, step)?;
    }
    let left = needs::missing(&observe::observe(shell, clusters)?);
    if let Some((thing, why)) = left.iter().flat_map(needs::Step::things).next() {
        bail!("{thing} ({why}) was installed but is still not found; is its folder in PATH?");
    }

    let what = if steps.is_empty() {
        "nothing is missing"
    } else {
        "everything is there now"
    };
    console::done(what, start.elapsed());
    Ok(())
}
