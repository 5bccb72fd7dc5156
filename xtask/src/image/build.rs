//! Builds statically linked binaries that contain no path of this machine.

use super::Processor;
use crate::shell::{Interrupted, Shell, show};
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The separator of flags in `CARGO_ENCODED_RUSTFLAGS`. Unlike in `RUSTFLAGS`, a flag may contain
/// spaces.
const SEPARATOR: &str = "\x1f";

/// The packages and binaries to build.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Selection<'a> {
    /// The packages to build. Cargo unifies the features of dependencies only among these
    /// packages.
    pub(crate) packages: &'a [&'a str],
    /// The binaries to build; all binaries of the packages if empty.
    pub(crate) programs: &'a [&'a str],
    /// A cargo feature such as `guest/bpf`; empty for the default features.
    pub(crate) features: &'a str,
    /// Additional environment variables for build scripts.
    pub(crate) environment: &'a [(&'a str, &'a Path)],
}

/// Builds the binaries, and returns their folder.
///
/// # Errors
///
/// Returns an error with the remedy if there is no C compiler for the processor, or if the build
/// fails.
pub(crate) fn binaries(
    shell: &mut Shell,
    processor: Processor,
    selection: Selection<'_>,
) -> Result<PathBuf> {
    let Selection {
        packages,
        programs,
        features,
        environment,
    } = selection;
    let start = Instant::now();
    let target = processor.target();
    let built = if programs.is_empty() {
        packages
    } else {
        programs
    };
    console::step(format_args!("Building {} for {target}", built.join(", ")));
    let toolchain = toolchain(shell)?;
    prepare(shell, processor, &toolchain)?;

    let name = target.replace('-', "_");
    let mut build = workspace::cargo(&["build", "--release", "--locked", "--target", &target]);
    for package in packages {
        build.args(["--package", package]);
    }
    for program in programs {
        build.args(["--bin", program]);
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

/// Checks for the C compiler, and installs Rust's standard library for `processor`.
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
        "missing: {target} (Rust's standard library for statically linked programs)"
    ));
    let mut add = Command::new("rustup");
    add.args(["target", "add", &target]);
    console::note(format_args!("running: {}", show(&add)));
    shell.run(add).with_context(|| {
        format!("failed to install Rust's standard library for {target}: was this toolchain installed by rustup?")
    })
}

/// Returns compiler flags that replace this machine's paths in the binaries with neutral paths, and that
/// make the binaries small: most of the resident memory of an idle process are pages of its binary.
///
/// The toolchain's own linker merges functions with identical code, and packs the relocations of a
/// position-independent executable, which each process reads completely at its start.
///
/// # Errors
///
/// Returns an error if cargo's folder is unknown, or if the toolchain has no linker.
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

    let mapped = mapped.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()));
    let linker = toolchain.join(format!(
        "lib/rustlib/{}-unknown-linux-gnu/bin/gcc-ld",
        env::consts::ARCH
    ));
    if !linker.is_dir() {
        bail!(
            "this Rust toolchain has no linker, {}: use a toolchain of rustup",
            linker.display()
        );
    }
    let linked = [
        format!("-Clink-arg=-B{}", linker.display()),
        "-Cstrip=symbols".to_owned(),
        "-Clink-arg=-fuse-ld=lld".to_owned(),
        "-Clink-arg=-Wl,--icf=all,--pack-dyn-relocs=relr".to_owned(),
    ];

    Ok([mapped.as_slice(), &linked].concat().join(SEPARATOR))
}

fn toolchain(shell: &mut Shell) -> Result<PathBuf> {
    let mut query = Command::new("rustc");
    query.args(["--print", "sysroot"]);
    let output = shell.output(query)?;
    let folder = String::from_utf8(output.stdout).context("the toolchain's path is not UTF-8")?;

    Ok(PathBuf::from(folder.trim()))
}
