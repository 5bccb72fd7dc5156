//! Checks the free disk space before a build.

use anyhow::{Context as _, Result, bail};
use nix::sys::statvfs::statvfs;
use std::path::{Path, PathBuf};

/// A folder to which a build writes.
#[derive(Debug)]
pub(super) struct Store {
    /// The kind of content, for messages.
    pub(super) what: &'static str,
    /// The environment variable with which a user can select another folder.
    pub(super) variable: &'static str,
    /// The path of the folder, which may not exist yet.
    pub(super) folder: PathBuf,
}

/// Disk space that the first build uses, in GB. Go's caches of modules and compiled packages take
/// 8 GB, or 11 GB with two releases of Kubernetes. Programs and temporary files of the linker take
/// the rest.
const FIRST_GB: u64 = 12;

/// Minimum free space to start a build, in bytes. It is less than [`FIRST_GB`], because later
/// builds need less: another release of Kubernetes takes about 3 GB.
const LEAST: u64 = 4 * GB;

const GB: u64 = 1_000_000_000;

/// Checks that each store has at least [`LEAST`] bytes of free space.
///
/// # Errors
///
/// Returns an error with the free space, the folder and the remedy.
pub(super) fn check(stores: &[Store]) -> Result<()> {
    for store in stores {
        if let Some(refusal) = refusal(store, free(&store.folder)?) {
            bail!(refusal);
        }
    }

    Ok(())
}

fn refusal(store: &Store, free: u64) -> Option<String> {
    let Store {
        what,
        variable,
        folder,
    } = store;
    let folder = folder.display();
    let (whole, tenth) = (free / GB, free % GB / (GB / 10));

    (free < LEAST).then(|| {
        format!(
            "only {whole}.{tenth} GB are free for {what} in {folder}: a build takes up to {FIRST_GB} GB the first time and does not start with less than {} GB; free some space there, or set {variable} to a folder on another disk",
            LEAST / GB
        )
    })
}

/// Returns the free space, in bytes, of the file system that contains `folder` or its first
/// existing ancestor.
fn free(folder: &Path) -> Result<u64> {
    let existing = folder
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let disk = statvfs(existing)
        .with_context(|| format!("failed to read the free space of {}", existing.display()))?;

    Ok(disk.blocks_available() * disk.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_refused_with_the_folder_and_the_remedy() {
        let refusal = refusal(&store("/x"), 1_250_000_000).unwrap();

        assert!(refusal.contains("only 1.2 GB are free for compiled packages in /x"));
        assert!(refusal.contains("set GOCACHE"));
    }

    #[test]
    fn enough_space_is_accepted() {
        assert_eq!(refusal(&store("/x"), LEAST), None);
    }

    #[test]
    fn a_missing_folder_is_on_the_disk_of_its_parent() {
        assert_eq!(
            free(Path::new("/proc/self/no/such")).unwrap(),
            free(Path::new("/proc/self")).unwrap()
        );
    }

    fn store(folder: &str) -> Store {
        Store {
            what: "compiled packages",
            variable: "GOCACHE",
            folder: folder.into(),
        }
    }
}
