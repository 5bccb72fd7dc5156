//! Decides which folders of the cache can be removed.

use super::digest::is_digest;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns whether the folder `newer` supersedes the folder `other`. A folder supersedes all other
/// folders of the same part or minor release.
pub(super) fn is_superseded(other: &str, newer: &str) -> bool {
    other != newer && family(other).is_some_and(|other| family(newer) == Some(other))
}

/// Returns a folder's name without its digest and without the patch number of its version. Returns
/// `None` if the name has no digest.
fn family(name: &str) -> Option<&str> {
    let (name, digest) = name.rsplit_once('-')?;
    if !is_digest(digest) {
        return None;
    }

    match name.rsplit_once('.') {
        Some((minor, patch)) if patch.parse::<u32>().is_ok() => Some(minor),
        _ => Some(name),
    }
}

/// Returns whether a process runs a program of `folder`. A running cluster may start other programs
/// of the folder at any time, so the folder must be kept.
///
/// Files are compared by inode, because their paths differ between mount namespaces. If two folders
/// contain hard links to a running program, both folders count as in use.
pub(super) fn is_in_use(folder: &Path) -> bool {
    let programs = files_in(&folder.join("bin"), "");

    !programs.is_disjoint(&files_in(Path::new("/proc"), "exe"))
}

/// Returns device and inode of the file `name` in each subfolder of `folder`. If `name` is empty,
/// returns device and inode of each entry of `folder` instead.
fn files_in(folder: &Path, name: &str) -> BTreeSet<(u64, u64)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeSet::new();
    };

    entries
        .flatten()
        .map(|entry| entry.path())
        .map(|path| {
            if name.is_empty() {
                path
            } else {
                path.join(name)
            }
        })
        .filter_map(|path| fs::metadata(path).ok())
        .map(|file| (file.dev(), file.ino()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::scratch::Scratch;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_of_other_inputs_is_superseded() {
        assert!(is_superseded("tools-0123456789ab", "tools-ba9876543210"));
        assert!(!is_superseded("tools-0123456789ab", "tools-0123456789ab"));
        assert!(!is_superseded("kwok-0123456789ab", "tools-0123456789ab"));
    }

    #[test]
    fn another_patch_release_is_superseded_and_another_minor_release_is_not() {
        let newer = "kubernetes-v1.35.5-0123456789ab";

        assert!(is_superseded("kubernetes-v1.35.4-ba9876543210", newer));
        assert!(!is_superseded("kubernetes-v1.36.3-ba9876543210", newer));
        assert!(!is_superseded("v1.35.4-ba9876543210", newer));
    }

    #[test]
    fn a_folder_without_digest_is_never_superseded() {
        for other in ["parts", "lock", "v1.35.4", "v1.35.4-images", "v1.35.4-0123"] {
            assert!(!is_superseded(other, "v1.35.4-0123456789ab"), "{other}");
        }
    }

    #[test]
    fn a_running_program_is_in_use() {
        let scratch = Scratch::new("in-use");
        scratch.write("bin/another", "program");

        let unused = is_in_use(scratch.path());
        symlink("/proc/self/exe", scratch.path().join("bin/it")).unwrap();
        let used = is_in_use(scratch.path());

        assert!(!unused && used);
    }
}
