//! Builds the programs from crates.io that the bench compares with this project's gateway.

use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result};
use std::path::PathBuf;
use std::time::Instant;

/// A program of a crate on crates.io.
#[derive(Debug)]
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) program: &'static str,
}

/// Builds a program with the lock file of its crate, and returns the program's path. Reuses the
/// program of an earlier call.
///
/// # Errors
///
/// Returns an error that names the crate if the crate does not build.
pub(crate) fn program(shell: &mut Shell, of: &Crate) -> Result<PathBuf> {
    let Crate {
        name,
        version,
        program,
    } = of;
    let folder = workspace::target()
        .join("tools")
        .join(format!("{name}-{version}"));
    let program = folder.join("bin").join(program);
    if program.is_file() {
        return Ok(program);
    }

    let start = Instant::now();
    console::step(format_args!("Building {name} {version}"));
    let exact = format!("={version}");
    let mut install = workspace::cargo(&["install", name, "--locked", "--version", &exact]);
    install
        .arg("--root")
        .arg(&folder)
        .env_remove("CARGO_TARGET_DIR");
    shell
        .run(install)
        .with_context(|| format!("failed to build {name} {version}"))?;
    console::done(format_args!("{name} {version}"), start.elapsed());

    Ok(program)
}
