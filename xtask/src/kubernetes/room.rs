//! Whether there is room on the disk for a build.

use anyhow::{Context as _, Result, bail};
use nix::sys::statvfs::statvfs;
use std::path::{Path, PathBuf};

/// A folder that a build writes to.
#[derive(Debug)]
pub(super) struct Store {
    /// What it is, for a person.
    pub(super) what: &'static str,
    /// The environment variable that puts it elsewhere.
    pub(super) variable: &'static str,
    /// Where it is, or will be.
    pub(super) folder: PathBuf,
}

/// What a first build needs: 8 GB of modules and compiled packages in Go's caches
/// (11 GB with two releases of Kubernetes), and the rest for the programs and for
/// what the linker writes meanwhile.
const FIRST_GB: u64 = 12;

/// No build begins with less. A later one takes less than a first one: another
/// release of Kubernetes is about 3 GB, and a newer one of the rest less.
const LEAST: u64 = 4 * GB;

const GB: u64 = 1_000_000_000;

/// Checks that a build can begin.
///
/// # Errors
///
/// Returns an error that tells how much is free, where, and what to do about it.
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
            "only {whole}.{tenth} GB are free for {what} in {folder}: a build takes up to {FIRST_GB} GB the first time and does not begin with less than {} GB; make room there, or set {variable} to a folder on another disk",
            LEAST / GB
        )
    })
}

/// How many bytes may be written below a folder that need not exist yet.
fn free(folder: &Path) -> Result<u64> {
    let existing = folder
        .ancestors()
        .find(|ancestor| ancestor.exists())
        .unwrap_or(Path::new("/"));
    let disk = statvfs(existing)
        .with_context(|| format!("failed to ask for the free space of {}", existing.display()))?;

    Ok(disk.blocks_available() * disk.fragment_size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_refused_with_the_place_and_the_cure() {
        let refusal = refusal(&store("/x"), 1_250_000_000).unwrap();

        assert!(refusal.contains("only 1.2 GB are free for compiled packages in /x"));
        assert!(refusal.contains("set GOCACHE"));
    }

    #[test]
    fn enough_room_is_no_problem() {
        assert_eq!(refusal(&store("/x"), LEAST), None);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_is_on_the_disk_of_its_parent() {
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
