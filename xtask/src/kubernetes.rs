//! `cargo xtask kubernetes-binaries`: the programs of a real Kubernetes cluster.
//!
//! They are compiled from sources that the checksums in `tests/kubernetes/go` pin, so
//! that the laboratory depends on no image registry and no package archive. The first
//! build takes a quarter of an hour, so its results are cached:
//!
//! ```text
//! /var/cache/liqo-lab                    or $LIQO_LAB_CACHE
//!   parts/tools-5d0c83f1e2ab/            the result of one `go build`, by its inputs' digest
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
use std::path::PathBuf;
use std::slice;
use std::time::Instant;

/// Which programs to build.
#[derive(Args, Debug)]
pub(crate) struct Binaries {
    /// The release of Kubernetes, in full (v1.35.4) or without its last number (1.35).
    #[arg(long, value_name = "VERSION", default_value = "v1.35")]
    k8s_version: String,
}

/// Builds missing programs and prints the folder of all.
///
/// # Errors
///
/// As [`folder`], and if `setup` cannot install a package.
pub(crate) fn run(shell: &mut Shell, options: &Binaries) -> Result<()> {
    setup::run_for(shell, &[Set::Kubernetes])?;
    let folder = folder(shell, &options.k8s_version)?;
    anstream::println!("{}", folder.display());

    Ok(())
}

/// Returns the folder with the programs of a release of Kubernetes, after building the
/// missing ones.
///
/// # Errors
///
/// Returns an error with the remedy if no such release is pinned, Go is missing, the disk is
/// full, the Go module proxy is unreachable, or a build fails.
pub(crate) fn folder(shell: &mut Shell, version: &str) -> Result<PathBuf> {
    let start = Instant::now();
    let modules = workspace::root().join("tests/kubernetes/go");
    let release = release::choose(version, release::known(&modules)?)?;
    let parts = part::all(&release, &modules)?;
    let cache = Cache::from_environment();
    let place = cache.whole(&release.version, &parts);
    console::step(format_args!(
        "Kubernetes {}: the programs of its nodes, from their sources",
        release.version
    ));

    if place.is_complete() {
        console::done("already built", start.elapsed());
        return Ok(place.folder);
    }
    let _locked = cache.lock(shell)?;
    // The process that held the lock may have built these programs.
    if !place.is_complete() {
        cache.remove_unfinished()?;
        build::missing(shell, &cache, &parts)?;
        assemble::assemble(&cache, &place, &parts)?;
        cache.remove_superseded(&place, &parts)?;
    }

    console::done("everything is built", start.elapsed());
    Ok(place.folder)
}

/// Returns helm for a processor, built from the same sources as that of the clusters, after
/// building it if it is missing.
///
/// # Errors
///
/// As [`folder`].
pub(crate) fn helm(shell: &mut Shell, processor: Processor) -> Result<PathBuf> {
    let start = Instant::now();
    let modules = workspace::root().join("tests/kubernetes/go");
    let part = part::helm(processor, &modules)?;
    let cache = Cache::from_environment();
    let place = cache.part(&part);
    console::step(format_args!("helm for {}", processor.as_str()));
    if !place.is_complete() {
        let _locked = cache.lock(shell)?;
        // Another process may have built it while this one waited for the lock.
        if !place.is_complete() {
            cache.remove_unfinished()?;
            build::missing(shell, &cache, slice::from_ref(&part))?;
            place.remove_superseded()?;
        }
    }

    console::done(part.folder(), start.elapsed());
    Ok(place.folder.join("bin/helm"))
}
