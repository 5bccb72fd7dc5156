//! `cargo xtask kubernetes-binaries`: builds the programs of a real Kubernetes cluster.
//!
//! The programs are built from sources that the checksums in `tests/kubernetes/go` pin. So the
//! Kubernetes laboratory depends on no image registry and no package archive. The first build
//! takes a quarter of an hour, so the results are cached:
//!
//! ```text
//! /var/cache/liqo-lab                    or $LIQO_LAB_CACHE
//!   parts/tools-5d0c83f1e2ab/            the result of one `go build`, with a digest of its inputs
//!   v1.35.4-90be0d7e41c6/                the programs of a cluster of that version:
//!     bin/  cni/  versions.json          hard links into the parts
//!   lock                                 held while parts are built
//! ```

mod assemble;
mod build;
mod cache;
mod compiler;
mod digest;
mod disk_space;
mod go_error;
mod gomod;
mod part;
mod release;
#[cfg(test)]
mod scratch;
mod superseded;
mod unfinished;

use crate::image::Processor;
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, setup, workspace};
use anyhow::Result;
use cache::Cache;
use clap::Args;
use part::Part;
use std::path::PathBuf;
use std::slice;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct Binaries {
    /// The Kubernetes release to build, as v1.35.4 or without patch version as 1.35.
    #[arg(long, value_name = "VERSION", default_value = "v1.35")]
    k8s_version: String,

    /// Leaves out kwok and metrics-server, which only long tests and benchmarks use.
    #[arg(long)]
    quick: bool,
}

/// Builds missing programs, and prints the folder that contains all programs.
///
/// # Errors
///
/// Returns the errors of [`folder`], and an error if a required package cannot be installed.
pub(crate) fn run(shell: &mut Shell, options: &Binaries) -> Result<()> {
    setup::run_for(shell, &[Set::Kubernetes])?;
    let folder = folder(shell, options)?;
    anstream::println!("{}", folder.display());

    Ok(())
}

/// Builds the missing programs of a Kubernetes release, and returns the folder that contains them.
///
/// # Errors
///
/// Returns an error with the remedy if the release is not pinned, Go is missing, the disk is full,
/// the Go module proxy is unreachable, or a build fails.
fn folder(shell: &mut Shell, options: &Binaries) -> Result<PathBuf> {
    let start = Instant::now();
    let modules = workspace::root().join("tests/kubernetes/go");
    let release = release::choose(&options.k8s_version, release::known(&modules)?)?;
    let mut parts = part::all(&release, &modules)?;
    let cache = Cache::from_environment();
    let mut place = cache.whole(&release.version, &parts);
    // The complete folder serves, too.
    if options.quick && !place.is_complete() {
        parts.retain(Part::is_essential);
        place = cache.whole(&release.version, &parts);
    }
    console::step(format_args!(
        "Kubernetes {}: the programs of its nodes, from their sources",
        release.version
    ));

    if place.is_complete() {
        console::done("already built", start.elapsed());
        return Ok(place.folder);
    }
    let _locked = cache.lock(shell)?;
    // Another process may have built the programs while this process waited for the lock.
    if !place.is_complete() {
        cache.remove_unfinished()?;
        build::missing(shell, &cache, &parts)?;
        assemble::assemble(&cache, &place, &parts)?;
        cache.remove_superseded(&place, &parts)?;
    }

    console::done("everything is built", start.elapsed());
    Ok(place.folder)
}

/// Returns the path of helm for a processor architecture, and builds helm first if it is missing.
/// The laboratory's clusters use helm of the same version.
///
/// # Errors
///
/// Returns the errors of [`folder`].
pub(crate) fn helm(shell: &mut Shell, processor: Processor) -> Result<PathBuf> {
    let start = Instant::now();
    let modules = workspace::root().join("tests/kubernetes/go");
    let part = part::helm(processor, &modules)?;
    let cache = Cache::from_environment();
    let place = cache.part(&part);
    console::step(format_args!("helm for {}", processor.as_str()));
    if !place.is_complete() {
        let _locked = cache.lock(shell)?;
        // Another process may have built helm while this process waited for the lock.
        if !place.is_complete() {
            cache.remove_unfinished()?;
            build::missing(shell, &cache, slice::from_ref(&part))?;
            place.remove_superseded()?;
        }
    }

    console::done(part.folder(), start.elapsed());
    Ok(place.folder.join("bin/helm"))
}
