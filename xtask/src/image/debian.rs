//! Downloads Debian packages for a processor architecture that differs from this machine's.
//!
//! apt runs with options for the other architecture, an empty list of installed packages and
//! separate folders. So apt needs no root rights and does not change the machine:
//!
//! ```text
//! target/images/debian-arm64/
//!   state/  cache/   apt's lists, and the downloaded packages
//!   system/          the unpacked packages
//!   packages         the names of the requested packages; written last
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

/// Returns the root folder of a Debian system that contains `packages` and their dependencies. The
/// folder is `/` for this machine's architecture, otherwise a folder below `target/images`.
///
/// # Errors
///
/// Returns an error if the configured package sources lack a package for `processor`.
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
            "the package sources in /etc/apt have no {} for {}: Debian's have",
            packages.join(", "),
            processor.as_str()
        )
    })?;
    apt.unpack(shell, &system)?;
    fs::write(&complete, wanted).context("failed to write the list of packages")?;
    console::done("fetched", start.elapsed());

    Ok(system)
}

/// apt for another processor architecture, with separate folders.
struct Apt {
    folder: PathBuf,
    processor: Processor,
}

impl Apt {
    /// Creates apt's folders. Removes the folders of an earlier attempt that failed.
    fn create(folder: &Path, processor: Processor) -> Result<Self> {
        let shown = folder.display();
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("failed to remove {shown}"))?;
        }
        for name in ["state/lists/partial", "cache/archives/partial", "system"] {
            fs::create_dir_all(folder.join(name))
                .with_context(|| format!("failed to create {shown}/{name}"))?;
        }
        // The empty file means that no package is installed.
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
        // By default, apt that runs as root downloads packages as the user `_apt`, which has no
        // write access to these folders.
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
    fn apt_for_another_processor_writes_only_to_separate_folders() {
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
