//! Folders that are there either completely or not at all.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// What the names of unfinished folders have in them, before the process's id.
const MARK: &str = ".partial-";

/// A folder that is being filled; removed when dropped.
#[derive(Debug)]
pub(super) struct Unfinished {
    folder: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    /// Creates an empty folder that will become `target`, beside it.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be created.
    pub(super) fn begin(target: &Path) -> Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let folder = target.with_file_name(format!("{name}{MARK}{}", process::id()));
        fs::create_dir_all(&folder)
            .with_context(|| format!("failed to create {}", folder.display()))?;

        Ok(Self {
            folder,
            target: target.to_owned(),
        })
    }

    /// Where it is now.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes it what it was to become. What has that name already goes: an earlier
    /// result of which a file was lost.
    ///
    /// # Errors
    ///
    /// Returns an error if the folder cannot be renamed.
    pub(super) fn finish(self) -> Result<()> {
        if self.target.exists() {
            fs::remove_dir_all(&self.target)
                .with_context(|| format!("failed to remove {}", self.target.display()))?;
        }

        fs::rename(&self.folder, &self.target)
            .with_context(|| format!("failed to create {}", self.target.display()))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After `finish` there is nothing to remove, and what a dying child of the
        // go command may still write here, the next run removes.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether a folder of this name was never finished.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.contains(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::scratch::Scratch;

    #[test]
    fn what_is_finished_takes_the_place_of_what_was_there() {
        let scratch = Scratch::new("finished");
        scratch.write("target/old", "");

        let unfinished = Unfinished::begin(&scratch.path().join("target")).unwrap();
        fs::write(unfinished.folder().join("new"), "").unwrap();
        unfinished.finish().unwrap();

        assert_eq!(scratch.names(""), ["target"]);
        assert_eq!(scratch.names("target"), ["new"]);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let scratch = Scratch::new("unfinished");

        let unfinished = Unfinished::begin(&scratch.path().join("target")).unwrap();
        fs::write(unfinished.folder().join("new"), "").unwrap();
        let during = scratch.names("");
        drop(unfinished);

        assert!(matches!(&during[..], [name] if is_unfinished(name)));
        assert!(scratch.names("").is_empty());
    }
}
