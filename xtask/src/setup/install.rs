//! Executes one step of the installation plan.

use super::needs::{self, BPF_MOUNT, LINKER_VERSION, LLVM, Package, Step};
use crate::console;
use crate::shell::{Shell, show};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::process::Command;
use std::time::Instant;

/// The apt option that sets the time limit for dpkg's lock, in seconds. Another installation may
/// hold the lock.
const APT_LOCK_WAIT: &str = "DPkg::Lock::Timeout=300";

/// Executes `step`, and prints its commands.
///
/// # Errors
///
/// Returns an error that names the failed command, and the remedy if one is known.
pub(super) fn apply(shell: &mut Shell, step: &Step) -> Result<()> {
    match step {
        Step::Packages(packages) => install_packages(shell, packages),
        Step::Components(components) => {
            let mut command = Command::new("rustup");
            command.args(["component", "add"]);
            command.args(components.iter().map(|component| component.name));
            announced(shell, command)
        }
        Step::Linker => announced(shell, install_linker()),
        Step::MountBpf => {
            let mut command = Command::new("mount");
            command.args(["-t", "bpf", "bpf", BPF_MOUNT]);
            announced(shell, command)
                .context("the kernel may have been built without CONFIG_BPF_SYSCALL")
        }
    }
}

fn install_packages(shell: &mut Shell, packages: &[&Package]) -> Result<()> {
    announced(shell, apt_get(&["update"]))
        .context("the package lists could not be fetched; is there a network?")?;
    for package in packages {
        let mut query = Command::new("apt-cache");
        query.args(["show", "--no-all-versions", package.name]);
        if !shell.output(query)?.status.success() {
            bail!(needs::unavailable(package, &release()));
        }
    }

    let mut install = apt_get(&["install", "--yes", "--no-install-recommends"]);
    install.args(packages.iter().map(|package| package.name));
    announced(shell, install)
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["--quiet", "-o", APT_LOCK_WAIT])
        .args(arguments);
    command
}

/// Returns the command that installs bpf-linker.
///
/// bpf-linker reads the bitcode of the Rust compiler, so both must use the same LLVM major version.
/// The build script of bpf-linker does not find LLVM in Debian's folder, so environment variables
/// name this folder.
fn install_linker() -> Command {
    let mut command = Command::new("cargo");
    command
        .env("LLVM_PREFIX", LLVM)
        .env("LLVM_SYS_221_PREFIX", LLVM)
        .env("RUSTFLAGS", format!("-L {LLVM}/lib"))
        .env_remove("CARGO_TARGET_DIR")
        .args(["install", "bpf-linker", "--locked", "--version"])
        .args([LINKER_VERSION, "--no-default-features"])
        .args(["--features", "llvm-22"]);
    command
}

fn announced(shell: &mut Shell, command: Command) -> Result<()> {
    let shown = show(&command);
    console::note(format_args!("running: {shown}"));
    let start = Instant::now();
    shell.run(command)?;
    console::done(shown, start.elapsed());

    Ok(())
}

fn release() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();

    text.lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .map_or("this system", |name| name.trim_matches('"'))
        .to_owned()
}
