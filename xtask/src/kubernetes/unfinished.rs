//! Folders that are created atomically.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// A part of the names of unfinished folders, before the process id.
const MARK: &str = ".partial-";

/// A folder that is being filled; removed when dropped.
#[derive(Debug)]
pub(super) struct Unfinished {
    folder: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    /// Creates an empty folder beside `target`, which [`Unfinished::finish`] renames to it.
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

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Renames the folder to its target. An existing target, which must have lost a file,
    /// is removed.
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
        // After `finish` there is nothing to remove. Files that a child of the go command
        // writes after this are removed by the next run.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether this is the name of an unfinished folder.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.contains(MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::scratch::Scratch;

    #[test]
    fn a_finished_folder_replaces_its_target() {
        let scratch = Scratch::new("finished");
        scratch.write("target/old", "");

        let unfinished = Unfinished::begin(&scratch.path().join("target")).unwrap();
        fs::write(unfinished.folder().join("new"), "").unwrap();
        unfinished.finish().unwrap();

        assert_eq!(scratch.names(""), ["target"]);
        assert_eq!(scratch.names("target"), ["new"]);
    }

    #[test]
    fn an_unfinished_folder_is_removed() {
        let scratch = Scratch::new("unfinished");

        let unfinished = Unfinished::begin(&scratch.path().join("target")).unwrap();
        fs::write(unfinished.folder().join("new"), "").unwrap();
        let during = scratch.names("");
        drop(unfinished);

        assert!(matches!(&during[..], [name] if is_unfinished(name)));
        assert!(scratch.names("").is_empty());
    }
}
