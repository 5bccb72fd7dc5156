//! Builds binaries that need no library and do not tell where they were built.

use super::Processor;
use crate::shell::{Interrupted, Shell, show};
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`, so that a path may have spaces.
const SEPARATOR: &str = "\x1f";

/// Builds the binaries of packages, with features such as `guest/bpf` or none, and
/// returns their folder.
///
/// # Errors
///
/// Returns an error with its cure if there is no compiler for the processor, or if
/// the build fails.
pub(crate) fn binaries(
    shell: &mut Shell,
    processor: Processor,
    packages: &[&str],
    features: &str,
) -> Result<PathBuf> {
    binaries_with(shell, processor, packages, features, &[])
}

/// As [`binaries`], with environment variables for build scripts.
///
/// # Errors
///
/// As [`binaries`].
pub(crate) fn binaries_with(
    shell: &mut Shell,
    processor: Processor,
    packages: &[&str],
    features: &str,
    environment: &[(&str, &Path)],
) -> Result<PathBuf> {
    let start = Instant::now();
    let target = processor.target();
    console::step(format_args!(
        "Building {} for {target}",
        packages.join(", ")
    ));
    let toolchain = toolchain(shell)?;
    prepare(shell, processor, &toolchain)?;

    let name = target.replace('-', "_");
    let mut build = workspace::cargo(&["build", "--release", "--locked", "--target", &target]);
    for package in packages {
        build.args(["--package", package]);
    }
    if !features.is_empty() {
        build.args(["--features", features]);
    }
    build
        .env(format!("CC_{name}"), processor.compiler())
        .env(
            format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()),
            processor.compiler(),
        )
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&toolchain)?)
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .envs(environment.iter().copied());
    shell.run(build)?;
    console::done("built", start.elapsed());

    Ok(workspace::target().join(target).join("release"))
}

/// Sees to it that the compilers can build for `processor`.
fn prepare(shell: &mut Shell, processor: Processor, toolchain: &Path) -> Result<()> {
    let compiler = processor.compiler();
    let mut query = Command::new(&compiler);
    query.arg("--version");
    let is_there = match shell.output(query) {
        Ok(output) => output.status.success(),
        Err(error) if error.is::<Interrupted>() => return Err(error),
        Err(_) => false,
    };
    if !is_there {
        bail!(
            "{compiler}, which compiles the cipher's C code for {}, is missing: install Debian's packages {}",
            processor.as_str(),
            processor.compiler_packages()
        );
    }

    let target = processor.target();
    let library = toolchain.join("lib/rustlib").join(&target).join("lib");
    if library.is_dir() {
        return Ok(());
    }
    console::note(format_args!(
        "missing: {target} (Rust's library for programs that need none)"
    ));
    let mut add = Command::new("rustup");
    add.args(["target", "add", &target]);
    console::note(format_args!("running: {}", show(&add)));
    shell.run(add).with_context(|| {
        format!("Rust's library for {target} could not be had; does rustup have this toolchain?")
    })
}

/// Flags that keep this machine's paths out of the binaries.
fn flags(toolchain: &Path) -> Result<String> {
    let home = match env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(env::var_os("HOME").context("there is no HOME")?).join(".cargo"),
    };
    let mapped = [
        (workspace::root(), "/liqo"),
        (&home, "/cargo"),
        (toolchain, "/rust"),
    ];

    Ok(mapped
        .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
        .join(SEPARATOR))
}

/// The toolchain's folder.
fn toolchain(shell: &mut Shell) -> Result<PathBuf> {
    let mut query = Command::new("rustc");
    query.args(["--print", "sysroot"]);
    let output = shell.output(query)?;
    let folder = String::from_utf8(output.stdout).context("the toolchain's path is not UTF-8")?;

    Ok(PathBuf::from(folder.trim()))
}
