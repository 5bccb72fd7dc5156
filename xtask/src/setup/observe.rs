//! Reads the state of the machine from files and from the output of `rustc`, `bpf-linker` and
//! `dpkg-query`. This must take only milliseconds, because most commands observe the machine first.

use super::needs::{BPF_MOUNT, COMPONENTS, Observed, PACKAGES};
use crate::shell::Shell;
use anyhow::{Context as _, Result, bail};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The criterion by which a package counts as installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// A program or file of the package exists. It may come from another source.
    Files,
    /// dpkg lists the package as installed.
    Packages,
}

/// Reads the state of the machine.
///
/// # Errors
///
/// Returns an error if the Rust compiler does not run. With [`Evidence::Packages`], also returns
/// an error if dpkg does not run.
pub(super) fn observe(shell: &mut Shell, evidence: Evidence) -> Result<Observed> {
    let toolchain = toolchain(shell)?;
    let installed = match evidence {
        Evidence::Files => None,
        Evidence::Packages => Some(installed(shell)?),
    };
    let packages = PACKAGES
        .iter()
        .filter(|package| match &installed {
            None => find(package.proof).is_some(),
            Some(installed) => installed.contains(package.name),
        })
        .map(|package| package.proof);
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
        bpf_mounted: statfs(BPF_MOUNT).is_ok_and(|fs| fs.filesystem_type() == BPF_FS_MAGIC),
    })
}

/// Finds a program in PATH and in the `sbin` folders, which may be missing in PATH. An absolute
/// path is looked up as a file.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();

    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Returns the names of all packages that dpkg has installed completely.
fn installed(shell: &mut Shell) -> Result<BTreeSet<String>> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"]);
    let output = shell
        .output(query)
        .context("only systems with dpkg know which package a program belongs to")?;
    if !output.status.success() {
        bail!("`dpkg-query --show` failed: {}", output.status);
    }

    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.strip_prefix("installed "))
        .map(str::to_owned)
        .collect())
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
        .context("`rustc --version --verbose` has no line `LLVM version`")
}

/// Returns the version of bpf-linker. Returns `None` if bpf-linker is missing, or if it does not
/// run because its LLVM library is missing. In both cases, installing bpf-linker is the remedy.
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
