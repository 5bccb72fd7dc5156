//! `cargo xtask cluster`: builds and runs the program that manages the Kubernetes laboratory: real
//! Kubernetes clusters on this machine, for the demo and the tests.
//!
//! The program is in the separate crate `kubernetes-lab`, because its Kubernetes client takes
//! longer to build than all other commands of `xtask`.

use crate::image::build::Selection;
use crate::image::{self, Processor};
use crate::setup;
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments of the Kubernetes laboratory; see `cargo xtask cluster --help`.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Cluster {
    /// The command of the Kubernetes laboratory and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    words: Vec<OsString>,
}

/// Builds the laboratory's program, and replaces this process with it.
///
/// # Errors
///
/// Returns an error if the program cannot be built or started.
pub(crate) fn run(shell: &mut Shell, options: &Cluster) -> Result<()> {
    let program = program(shell)?;
    let words = match options.words.as_slice() {
        [] => vec!["--help".into()],
        words => words.to_vec(),
    };
    // `exec` gives the terminal to the program, as `kubectl exec --tty` needs.
    let error = Command::new(&program).args(words).exec();

    Err(error).with_context(|| format!("failed to start {}", program.display()))
}

/// Builds the laboratory's program and returns its path. The first build takes a few minutes.
///
/// # Errors
///
/// Returns an error if the program cannot be built.
pub(crate) fn program(shell: &mut Shell) -> Result<PathBuf> {
    if !workspace::target().join("debug/cluster").exists() {
        // The first build may need packages that this machine lacks.
        setup::run_for(shell, &[Set::Kubernetes])?;
    }

    workspace::program(shell, "cluster")
}

/// Builds the programs that run in the laboratory's test pods, and prints their folder.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn guests(shell: &mut Shell) -> Result<()> {
    let folder = guest_programs(shell, "")?;
    anstream::println!("{}", folder.display());

    Ok(())
}

/// Builds the programs that run in the laboratory's test pods, and returns their folder: guests and
/// the shop. `features` is empty or a cargo feature such as `guest/bpf`.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn guest_programs(shell: &mut Shell, features: &str) -> Result<PathBuf> {
    let guest = Selection {
        packages: &["guest", "shop"],
        features,
        ..Selection::default()
    };

    image::build::binaries(shell, Processor::machine()?, guest)
}

/// Builds the programs and images of the clusters' nodes, and returns their folder. `options` are
/// those of the laboratory's command `build`.
///
/// # Errors
///
/// Returns an error if a build fails.
pub(crate) fn artifacts(shell: &mut Shell, program: &Path, options: &[&str]) -> Result<PathBuf> {
    let mut build = Command::new(program);
    build.arg("build").args(options);
    let output = shell.capture(build)?;
    if !output.status.success() {
        bail!("failed to build Kubernetes: see above");
    }
    let text = String::from_utf8(output.stdout).context("a path is not UTF-8")?;

    Ok(text.trim().into())
}
