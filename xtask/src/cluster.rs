//! `cargo xtask cluster`: real Kubernetes clusters, by the program of the laboratory.
//!
//! That program is a crate of its own, since it has a Kubernetes client in it, which
//! takes longer to build than all that the other commands need.

use crate::image::{self, Processor};
use crate::setup;
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to do with clusters; `cargo xtask cluster --help` tells.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct Cluster {
    /// The command, and what belongs to it.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    words: Vec<OsString>,
}

/// Builds the laboratory's program, and becomes it.
///
/// # Errors
///
/// Returns an error if it cannot be built.
pub(crate) fn run(shell: &mut Shell, options: &Cluster) -> Result<()> {
    let program = program(shell)?;
    let words = match options.words.as_slice() {
        [] => vec!["--help".into()],
        words => words.to_vec(),
    };
    // It gets the terminal, for `kubectl exec --tty` for example.
    let error = Command::new(&program).args(words).exec();

    Err(error).with_context(|| format!("failed to start {}", program.display()))
}

/// Builds the laboratory's program, which takes a few minutes the first time.
///
/// # Errors
///
/// Returns an error if it cannot be built.
pub(crate) fn program(shell: &mut Shell) -> Result<PathBuf> {
    let program = workspace::target().join("debug").join("cluster");
    let mut build = workspace::cargo(&["build", "--locked", "--package", "kubernetes-lab"]);
    build.args(["--bin", "cluster"]);
    if program.exists() {
        build.arg("--quiet");
    } else {
        // A bare machine lacks the C compiler that cryptography is built with.
        setup::run_for_clusters(shell)?;
    }
    shell.run(build)?;

    Ok(program)
}

/// Builds the programs that run in the laboratory's pods, and prints their folder.
///
/// # Errors
///
/// Returns an error if they do not build.
pub(crate) fn guests(shell: &mut Shell) -> Result<()> {
    let folder = guest_programs(shell, "")?;
    anstream::println!("{}", folder.display());

    Ok(())
}

/// Builds the programs that run in the laboratory's pods, with features such as
/// `guest/bpf` or none, and returns their folder.
///
/// # Errors
///
/// Returns an error if they do not build.
pub(crate) fn guest_programs(shell: &mut Shell, features: &str) -> Result<PathBuf> {
    image::build::binaries(shell, Processor::machine()?, &["guest"], features)
}

/// Builds what clusters are made of, and returns its folder.
///
/// # Errors
///
/// Returns an error if it does not build.
pub(crate) fn artifacts(shell: &mut Shell, program: &Path) -> Result<PathBuf> {
    let mut build = Command::new(program);
    build.arg("build");
    let output = shell.capture(build)?;
    if !output.status.success() {
        bail!("Kubernetes could not be built: see above");
    }
    let text = String::from_utf8(output.stdout).context("a path is not UTF-8")?;

    Ok(text.trim().into())
}
