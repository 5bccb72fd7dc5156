//! The cache of built Kubernetes programs.

use super::part::{self, Part};
use super::superseded;
use super::unfinished::is_unfinished;
use crate::console;
use crate::shell::Shell;
use anyhow::{Context as _, Result};
use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names another cache folder, for users without write access to
/// [`DEFAULT`].
pub(super) const VARIABLE: &str = "LIQO_LAB_CACHE";

const DEFAULT: &str = "/var/cache/liqo-lab";

/// The subfolder of the cache that contains all parts.
const PARTS: &str = "parts";

#[derive(Debug)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Returns the cache in the folder that [`VARIABLE`] names, otherwise in [`DEFAULT`].
    pub(super) fn from_environment() -> Self {
        let root = env::var_os(VARIABLE).filter(|root| !root.is_empty());

        Self::at(root.map_or_else(|| DEFAULT.into(), PathBuf::from))
    }

    pub(super) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder of a part.
    pub(super) fn part(&self, part: &Part) -> Place {
        Place::new(self.root.join(PARTS).join(part.folder()), [part])
    }

    /// Returns the folder that contains the programs of all parts of a release.
    pub(super) fn whole(&self, version: &str, parts: &[Part]) -> Place {
        let folder = part::folder_of_all(version, parts);

        Place::new(self.root.join(folder), parts)
    }

    /// Waits for the cache's lock, which is held until the returned file is closed. Without the
    /// lock, two builds at the same time would compile the same packages twice.
    ///
    /// # Errors
    ///
    /// Returns an error with the remedy if the cache is not writable. Returns `Interrupted`
    /// after Ctrl-C.
    pub(super) fn lock(&self, shell: &mut Shell) -> Result<File> {
        let file = self.create().with_context(|| {
            format!(
                "failed to write to {}: run this as root, or set {VARIABLE} to a writable folder",
                self.root.display()
            )
        })?;

        let mut is_announced = false;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) => (),
                Err(TryLockError::Error(error)) => {
                    return Err(error)
                        .with_context(|| format!("failed to lock {}", self.root.display()));
                }
            }
            if !is_announced {
                console::note("waiting for another build to end");
                is_announced = true;
            }
            // `Shell` handles Ctrl-C only while a child process runs. So a `sleep` process is used
            // instead of `thread::sleep`.
            let mut pause = Command::new("sleep");
            pause.arg("0.5");
            shell.run(pause)?;
        }
    }

    fn create(&self) -> std::io::Result<File> {
        fs::create_dir_all(self.root.join(PARTS))?;
        File::options()
            .create(true)
            .append(true)
            .open(self.root.join("lock"))
    }

    /// Removes the folders of interrupted builds. The caller holds the lock, so no other process
    /// uses these folders.
    ///
    /// # Errors
    ///
    /// Returns an error that names the folder that cannot be removed.
    pub(super) fn remove_unfinished(&self) -> Result<()> {
        for folder in [self.root.clone(), self.root.join(PARTS)] {
            for name in names_in(&folder)? {
                if is_unfinished(&name) {
                    remove(&folder.join(name))?;
                }
            }
        }

        Ok(())
    }

    /// Removes older versions of `whole` and of `parts`. Versions whose programs are running are
    /// kept.
    ///
    /// # Errors
    ///
    /// Returns an error that names the folder that cannot be removed.
    pub(super) fn remove_superseded(&self, whole: &Place, parts: &[Part]) -> Result<()> {
        whole.remove_superseded()?;
        for part in parts {
            self.part(part).remove_superseded()?;
        }

        Ok(())
    }
}

/// A folder in the cache, and the programs that it must contain.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) folder: PathBuf,
    /// Paths of the programs relative to the folder.
    programs: Vec<&'static str>,
}

impl Place {
    fn new<'a>(folder: PathBuf, parts: impl IntoIterator<Item = &'a Part>) -> Self {
        let programs = parts.into_iter().flat_map(|part| part.programs);

        Self {
            folder,
            programs: programs.map(|program| program.place).collect(),
        }
    }

    /// Returns whether every program exists and is not empty. A crash of the machine can leave
    /// empty files.
    pub(super) fn is_complete(&self) -> bool {
        self.programs
            .iter()
            .all(|program| fs::metadata(self.folder.join(program)).is_ok_and(|file| file.len() > 0))
    }

    /// Removes folders of the same part or release that were built from other inputs. Keeps a
    /// folder if one of its programs is running.
    ///
    /// # Errors
    ///
    /// Returns an error that names the folder that cannot be removed.
    pub(super) fn remove_superseded(&self) -> Result<()> {
        let (Some(parent), Some(name)) = (self.folder.parent(), self.folder.file_name()) else {
            return Ok(());
        };
        for other in names_in(parent)? {
            let folder = parent.join(&other);
            if superseded::is_superseded(&other, &name.to_string_lossy())
                && !superseded::is_in_use(&folder)
            {
                remove(&folder)?;
            }
        }

        Ok(())
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>> {
    let context = || format!("failed to list {}", folder.display());
    fs::read_dir(folder)
        .with_context(context)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()
        .with_context(context)
}

fn remove(folder: &Path) -> Result<()> {
    fs::remove_dir_all(folder).with_context(|| format!("failed to remove {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::scratch::Scratch;

    #[test]
    fn a_place_is_complete_if_no_program_is_missing_or_empty() {
        let scratch = Scratch::new("complete");
        let place = Place {
            folder: scratch.path().to_owned(),
            programs: vec!["bin/a", "cni/b"],
        };

        scratch.write("bin/a", "program");
        let without = place.is_complete();
        scratch.write("cni/b", "");
        let empty = place.is_complete();
        scratch.write("cni/b", "program");

        assert!(!without && !empty && place.is_complete());
    }

    #[test]
    fn only_superseded_and_interrupted_builds_are_removed() {
        let scratch = Scratch::new("superseded");
        let cache = Cache::at(scratch.path().to_owned());
        let parts = part::of_this_checkout();
        let whole = cache.whole("v1.35.4", &parts);
        let kept = [
            part::folder_of_all("v1.35.4", &parts),
            "v1.36.3-0123456789ab".to_owned(),
            "dev".to_owned(),
        ];
        let removed = ["v1.35.3-0123456789ab", "v1.35.4-0123456789ab"];
        for name in kept.iter().map(String::as_str).chain(removed) {
            scratch.write(&format!("{name}/bin/kube"), "");
        }
        scratch.write("v1.36.3-0123456789ab.partial-1/bin/kube", "");
        scratch.write("parts/tools-0123456789ab/bin/etcd", "");
        scratch.write("parts/kwok-0123456789ab.partial-1/bin/kwok", "");

        cache.remove_unfinished().unwrap();
        cache.remove_superseded(&whole, &parts).unwrap();

        let mut left = kept.to_vec();
        left.extend(["parts".to_owned()]);
        left.sort();
        assert_eq!(scratch.names(""), left);
        assert!(scratch.names("parts").is_empty());
    }
}
