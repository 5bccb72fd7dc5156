//! `cargo xtask kubernetes-binaries`: the programs of a real Kubernetes cluster.
//!
//! They are compiled from their sources, which the checksums in
//! `tests/kubernetes/go` pin, so that neither a registry of images nor a package
//! archive decides what the laboratory runs. The first time takes a quarter of an
//! hour, hence everything is kept:
//!
//! ```text
//! /var/cache/liqo-lab                    or $LIQO_LAB_CACHE
//!   parts/tools-5d0c83f1e2ab/            what one `go build` made, by its inputs' digest
//!   v1.35.4-90be0d7e41c6/                what a cluster of that version needs:
//!     bin/  cni/  versions.json          hard links into the parts
//!   lock                                 held while parts are built
//! ```

mod assemble;
mod build;
mod cache;
mod compiler;
mod complaint;
mod digest;
mod gomod;
mod part;
mod release;
mod room;
#[cfg(test)]
mod scratch;
mod superseded;
mod unfinished;

use crate::image::Processor;
use crate::shell::Shell;
use crate::{console, setup, workspace};
use anyhow::Result;
use cache::Cache;
use clap::Args;
use std::path::PathBuf;
use std::slice;
use std::time::Instant;

/// What to build.
#[derive(Args, Debug)]
pub(crate) struct Binaries {
    /// The release of Kubernetes, in full (v1.35.4) or without its last number (1.35).
    #[arg(long, value_name = "VERSION", default_value = "v1.35")]
    k8s_version: String,
}

/// Builds what is missing and prints where everything is.
///
/// # Errors
///
/// As [`folder`], and if this machine lacks what `setup` cannot install.
pub(crate) fn run(shell: &mut Shell, options: &Binaries) -> Result<()> {
    setup::run_for_clusters(shell)?;
    let folder = folder(shell, &options.k8s_version)?;
    anstream::println!("{}", folder.display());

    Ok(())
}

/// Returns the folder with the programs of clusters of a release of Kubernetes;
/// builds what was not built before.
///
/// # Errors
///
/// Returns an error with its cure if there is no such release here, no Go, no room
/// on the disk or no way to the Go module proxy, or if a build fails.
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
        console::done("built before", start.elapsed());
        return Ok(place.folder);
    }
    let _locked = cache.lock(shell)?;
    // Whoever had the lock may have built just this.
    if !place.is_complete() {
        cache.remove_unfinished()?;
        build::missing(shell, &cache, &parts)?;
        assemble::assemble(&cache, &place, &parts)?;
        cache.remove_superseded(&place, &parts)?;
    }

    console::done("everything is built", start.elapsed());
    Ok(place.folder)
}

/// Returns helm for a processor, from the same sources as that of the clusters; builds it
/// if it was not built before, which needs none of their other programs.
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
