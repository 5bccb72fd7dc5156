//! Folders that appear at their final path only when they are complete.

use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

/// The text before the process id in the names of unfinished folders.
const MARK: &str = ".partial-";

/// A folder that is being filled, which is removed on drop unless it was finished.
#[derive(Debug)]
pub(super) struct Unfinished {
    folder: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    /// Creates an empty folder beside `target`. [`Unfinished::finish`] renames the folder to
    /// `target`.
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

    /// Renames the folder to its target, and removes an existing target first. A target exists
    /// only if it has become incomplete.
    ///
    /// # Errors
    ///
    /// Returns an error if the existing target cannot be removed or the folder cannot be renamed.
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
        // The folder no longer exists if `finish` has renamed it. A child of an interrupted go
        // command may still write files after this call. The next run removes these files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns whether `name` is the name of an unfinished folder.
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
