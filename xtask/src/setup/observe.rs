//! Looks at the machine, in milliseconds: files, and two programs' answers.

use super::needs::{BPF_MOUNT, CLUSTER_PACKAGES, COMPONENTS, Observed, PACKAGES};
use crate::shell::Shell;
use anyhow::{Context as _, Result};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::Uid;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns what is there; `clusters` is what is wanted.
///
/// # Errors
///
/// Returns an error if the compiler does not answer.
pub(super) fn observe(shell: &mut Shell, clusters: bool) -> Result<Observed> {
    let toolchain = toolchain(shell)?;
    let packages = PACKAGES
        .iter()
        .chain(CLUSTER_PACKAGES)
        .map(|package| package.proof)
        .filter(|proof| find(proof).is_some());
    let components = COMPONENTS
        .iter()
        .map(|component| component.proof)
        .filter(|proof| toolchain.join(proof).exists());

    Ok(Observed {
        root: Uid::effective().is_root(),
        apt: find("apt-get").is_some(),
        rustup: find("rustup").is_some(),
        compiler_llvm: compiler_llvm(shell)?,
        proofs: packages.chain(components).collect(),
        linker: linker_version(shell)?,
        clusters,
        bpf_mounted: statfs(BPF_MOUNT).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC),
    })
}

/// Finds a program in PATH, where root's programs are even for others, or, given
/// an absolute path, that file.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();

    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

fn toolchain(shell: &mut Shell) -> Result<PathBuf> {
    let mut command = Command::new("rustc");
    command.args(["--print", "sysroot"]);
    let output = shell.output(command)?;
    let folder = String::from_utf8(output.stdout).context("the toolchain's path is not UTF-8")?;

    Ok(Path::new(folder.trim()).to_owned())
}

fn compiler_llvm(shell: &mut Shell) -> Result<String> {
    let mut command = Command::new("rustc");
    command.args(["--version", "--verbose"]);
    let output = shell.output(command)?;
    let text = String::from_utf8_lossy(&output.stdout);

    text.lines()
        .find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next())
        .map(str::to_owned)
        .context("the compiler does not tell its LLVM's version")
}

/// Returns nothing if the linker is absent, and nothing either if it does not
/// run, because its LLVM is gone for example: both are cured by installing.
fn linker_version(shell: &mut Shell) -> Result<Option<String>> {
    let Some(linker) = find("bpf-linker") else {
        return Ok(None);
    };
    let mut command = Command::new(linker);
    command.arg("--version");
    let output = shell.output(command)?;
    let text = String::from_utf8_lossy(&output.stdout);

    Ok(text.split_whitespace().nth(1).map(str::to_owned))
}
