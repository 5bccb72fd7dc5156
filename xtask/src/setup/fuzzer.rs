//! Installs cargo-fuzz, which builds fuzz targets with libFuzzer and the address sanitizer, and
//! runs them.

use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::time::Instant;

/// The pinned version of cargo-fuzz.
const VERSION: &str = "0.13.2";

/// Returns the path of cargo-fuzz. Builds cargo-fuzz below `target/` if it is missing.
///
/// # Errors
///
/// Returns an error that names the command that failed.
pub(crate) fn program(shell: &mut Shell) -> Result<PathBuf> {
    let folder = workspace::target()
        .join("tools")
        .join(format!("cargo-fuzz-{VERSION}"));
    let program = folder.join("bin/cargo-fuzz");
    if program.is_file() {
        return Ok(program);
    }

    let start = Instant::now();
    console::step(format_args!("Building cargo-fuzz {VERSION}"));
    let mut install = workspace::cargo(&["install", "cargo-fuzz", "--locked", "--version"]);
    install.arg(VERSION).arg("--root").arg(&folder);
    shell
        .run(install)
        .context("failed to install cargo-fuzz; is crates.io reachable?")?;
    console::done(format_args!("cargo-fuzz {VERSION}"), start.elapsed());

    Ok(program)
}
