//! The checkout: its folders, its commit, and calls of cargo.

use crate::shell::{Interrupted, Shell};
use anyhow::{Context as _, Result};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the top folder of the checkout.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crate is a folder of the workspace")
}

/// Returns cargo's target folder, which `CARGO_TARGET_DIR` can change.
pub(crate) fn target() -> PathBuf {
    let from_environment = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);

    root().join(from_environment.unwrap_or_else(|| "target".into()))
}

/// Returns the folder of the release binaries, which are the same as in the images.
pub(crate) fn binaries() -> PathBuf {
    let target = format!("{}-unknown-linux-musl", env::consts::ARCH);

    self::target().join(target).join("release")
}

/// Describes the commit with `git describe` and the given `options`. Appends `-dirty` if files
/// differ from the commit. Returns `None` without git or outside of a repository.
///
/// # Errors
///
/// Returns an error if git was interrupted.
pub(crate) fn revision(shell: &mut Shell, options: &[&str]) -> Result<Option<String>> {
    let mut query = Command::new("git");
    query
        .args(["describe", "--always", "--dirty"])
        .args(options)
        .current_dir(root());
    let output = match shell.output(query) {
        Ok(output) => output,
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(_) => return Ok(None),
    };
    let text = String::from_utf8(output.stdout).context("a commit is hexadecimal")?;

    Ok(output.status.success().then(|| text.trim().to_owned()))
}

/// Returns a call of cargo for targets of any package but the gateway, which `--bin`, `--test` and
/// `--example` select.
///
/// Cargo selects features of dependencies for all selected packages together. With a set of packages
/// for each command, most dependencies would be compiled once for each set. The gateway is left out
/// because its unit tests select a simulated clock of boringtun.
pub(crate) fn cargo_for(command: &str) -> Command {
    cargo(&[command, "--locked", "--workspace", "--exclude", "gateway"])
}

/// Builds a binary for this machine without optimisation, and returns its path. The first build
/// takes minutes, and prints its progress.
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn program(shell: &mut Shell, name: &str) -> Result<PathBuf> {
    built(shell, target().join("debug").join(name), "--bin", name)
}

/// Builds an example program. See [`program`].
///
/// # Errors
///
/// Returns an error if the build fails.
pub(crate) fn example(shell: &mut Shell, name: &str) -> Result<PathBuf> {
    let path = target().join("debug/examples").join(name);
    built(shell, path, "--example", name)
}

fn built(shell: &mut Shell, path: PathBuf, option: &str, name: &str) -> Result<PathBuf> {
    let mut build = cargo_for("build");
    build.args([option, name]);
    build.args(path.exists().then_some("--quiet"));
    shell.run(build)?;

    Ok(path)
}

/// Returns a call of the cargo that runs this crate. Its working directory is the top folder of
/// the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // `cargo run` sets these variables for this crate. A build script that depends on a variable
    // runs again when the variable changes, so the variables are removed.
    for (name, _) in env::vars_os() {
        let name_ = name.to_string_lossy();
        if name_.starts_with("CARGO_PKG_") || name_.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}
