//! Programs of Debian for a processor that is not this machine's.
//!
//! apt can fetch them when it is told that it is for another processor and that
//! nothing is installed; with folders of its own it then neither needs root nor
//! changes anything of the machine:
//!
//! ```text
//! target/images/debian-arm64/
//!   state/  cache/   apt's own: lists, and the packages as fetched
//!   system/          what is in the packages
//!   packages         which were asked for; written last
//! ```

use super::Processor;
use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Returns the root of a system with these packages and all that they depend on:
/// `/` for this machine's processor, else a folder, which is filled once.
///
/// # Errors
///
/// Returns an error if the packages cannot be had for `processor`.
pub(super) fn system(
    shell: &mut Shell,
    processor: Processor,
    packages: &[&str],
) -> Result<PathBuf> {
    if processor.is_machine() {
        return Ok(PathBuf::from("/"));
    }
    let name = format!("images/debian-{}", processor.as_str());
    let folder = workspace::target().join(name);
    let (system, complete) = (folder.join("system"), folder.join("packages"));
    let wanted = packages.join("\n");
    if fs::read_to_string(&complete).is_ok_and(|present| present == wanted) {
        return Ok(system);
    }

    let start = Instant::now();
    console::step(format_args!(
        "Fetching {} for {} from Debian",
        packages.join(", "),
        processor.as_str()
    ));
    let apt = Apt::create(&folder, processor)?;
    apt.fetch(shell, packages).with_context(|| {
        format!(
            "the package sources of this machine (/etc/apt) do not have {} for {}: Debian's do",
            packages.join(", "),
            processor.as_str()
        )
    })?;
    apt.unpack(shell, &system)?;
    fs::write(&complete, wanted).context("failed to note what was fetched")?;
    console::done("fetched", start.elapsed());

    Ok(system)
}

/// An apt with folders of its own.
struct Apt {
    folder: PathBuf,
    processor: Processor,
}

impl Apt {
    /// Creates the folders, without what may be left of an attempt that failed.
    fn create(folder: &Path, processor: Processor) -> Result<Self> {
        let shown = folder.display();
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("failed to remove {shown}"))?;
        }
        for name in ["state/lists/partial", "cache/archives/partial", "system"] {
            fs::create_dir_all(folder.join(name))
                .with_context(|| format!("failed to create {shown}/{name}"))?;
        }
        // No package is installed.
        fs::write(folder.join("state/status"), "")
            .with_context(|| format!("failed to write {shown}/state/status"))?;

        Ok(Self {
            folder: folder.to_owned(),
            processor,
        })
    }

    fn fetch(&self, shell: &mut Shell, packages: &[&str]) -> Result<()> {
        let mut update = self.get();
        update.arg("update");
        shell.run(update)?;
        let mut install = self.get();
        install
            .args(["install", "--yes", "--download-only"])
            .arg("--no-install-recommends")
            .args(packages);

        shell.run(install)
    }

    fn unpack(&self, shell: &mut Shell, system: &Path) -> Result<()> {
        let archives = self.folder.join("cache/archives");
        let files = fs::read_dir(&archives)
            .with_context(|| format!("failed to list {}", archives.display()))?;
        for file in files {
            let file = file?.path();
            if file.extension().is_some_and(|it| it == "deb") {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("--extract").args([file.as_path(), system]);
                shell.run(unpack)?;
            }
        }

        Ok(())
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("--quiet=2");
        let architecture = self.processor.as_str();
        for option in ["APT::Architecture", "APT::Architectures"] {
            command.args(["-o", &format!("{option}={architecture}")]);
        }
        for (option, place) in [
            ("Dir::State", "state"),
            ("Dir::State::status", "state/status"),
            ("Dir::Cache", "cache"),
        ] {
            let mut setting = OsString::from(format!("{option}="));
            setting.push(self.folder.join(place));
            command.arg("-o").arg(setting);
        }
        // It would give up root for a user who may not write here.
        if nix::unistd::Uid::effective().is_root() {
            command.args(["-o", "APT::Sandbox::User=root"]);
        }

        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apt_for_another_processor_writes_into_its_own_folders_only() {
        let apt = Apt {
            folder: PathBuf::from("/cache"),
            processor: Processor::Arm64,
        };

        let command = crate::shell::show(&apt.get());

        assert!(command.contains("-o APT::Architecture=arm64"), "{command}");
        let folders: Vec<_> = command
            .split(' ')
            .filter(|word| word.starts_with("Dir::"))
            .collect();
        assert_eq!(
            folders,
            [
                "Dir::State=/cache/state",
                "Dir::State::status=/cache/state/status",
                "Dir::Cache=/cache/cache"
            ]
        );
    }
}
