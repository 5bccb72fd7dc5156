//! `cargo xtask liqoctl`: builds the released `liqoctl`, a statically linked binary that includes
//! helm.
//!
//! `cargo build --package liqoctl` builds a `liqoctl` without helm, and needs no Go.

use crate::image::build::Selection;
use crate::image::{self, Processor};
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, kubernetes, setup, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// The processor architectures to build for: amd64, arm64 or amd64,arm64 [default: the
    /// architecture of this machine].
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<Processor>,

    /// The folder for the binaries [default: target/liqoctl].
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// The environment variable with which the build script of `liqoctl` finds the compressed helm.
const BUNDLED_HELM: &str = "LIQOCTL_BUNDLED_HELM";

/// Builds `liqoctl`, and prints the path of each binary.
///
/// # Errors
///
/// Returns an error with the remedy if a compiler is missing or a build fails.
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    setup::run_for(shell, &[Set::Image])?;
    let output = match &options.output {
        Some(folder) => env::current_dir()?.join(folder),
        None => workspace::target().join("liqoctl"),
    };
    for processor in image::processors(&options.arch)? {
        let file = build(shell, processor, &output)?;
        anstream::println!("{}", file.display());
    }

    Ok(())
}

/// Builds the released `liqoctl` for this machine, and returns its path.
///
/// # Errors
///
/// Returns the errors of [`run`].
pub(crate) fn released(shell: &mut Shell) -> Result<PathBuf> {
    build(
        shell,
        Processor::machine()?,
        &workspace::target().join("liqoctl"),
    )
}

fn build(shell: &mut Shell, processor: Processor, output: &Path) -> Result<PathBuf> {
    let helm = kubernetes::helm(shell, processor)?;
    let compressed = compress(shell, &helm)?;
    let environment = [(BUNDLED_HELM, compressed.as_path())];
    let selection = Selection {
        packages: &image::RELEASED,
        programs: &["liqoctl"],
        environment: &environment,
        ..Selection::default()
    };
    let binaries = image::build::binaries(shell, processor, selection)?;

    create(output)?;
    let file = output.join(format!("liqoctl-linux-{}", processor.as_str()));
    // The kernel refuses to write to a program that runs.
    let partial = file.with_extension("partial");
    fs::copy(binaries.join("liqoctl"), &partial)
        .and_then(|_| fs::rename(&partial, &file))
        .with_context(|| format!("failed to write {}", file.display()))?;
    let bytes = fs::metadata(&file)?.len();
    console::note(format_args!(
        "{}: {} MB",
        file.display(),
        bytes.div_ceil(1_000_000)
    ));

    Ok(file)
}

/// Compresses helm, and returns the archive's path. Reuses the archive of an earlier call.
fn compress(shell: &mut Shell, helm: &Path) -> Result<PathBuf> {
    let folder = workspace::target().join("helm");
    // The path of helm is PART/bin/helm. The name of the folder PART contains a digest of all
    // inputs of the build, so it identifies the version of helm.
    let part = helm.ancestors().nth(2).and_then(Path::file_name);
    let part = part.context("helm is not in the cache")?;
    let archive = folder.join(part).with_extension("gz");
    if archive.is_file() {
        return Ok(archive);
    }

    create(&folder)?;
    let mut gzip = Command::new("gzip");
    gzip.args(["--best", "--no-name", "--stdout"]).arg(helm);
    let output = shell.output(gzip)?;
    if !output.status.success() {
        bail!(
            "gzip failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    // The archive is renamed after it is complete, so that an interrupted write leaves no archive.
    let partial = archive.with_extension("partial");
    fs::write(&partial, &output.stdout)
        .and_then(|()| fs::rename(&partial, &archive))
        .with_context(|| format!("failed to write {}", archive.display()))?;

    Ok(archive)
}

fn create(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))
}
