//! Which folders of the cache nobody needs any more.

use super::digest::is_digest;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Whether the folder called `newer` takes the place of that called `other`: the
/// same thing, from other inputs or of another patch release.
pub(super) fn is_superseded(other: &str, newer: &str) -> bool {
    other != newer && family(other).is_some_and(|other| family(newer) == Some(other))
}

/// A name without its digest, and without the last number of the version.
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

/// Whether a process runs a program of `folder`: a cluster that is up starts more
/// of them at any time.
///
/// Files are compared by number, because processes in namespaces of their own see
/// them under other names. Another folder may have the same files, so this errs on
/// the side of keeping.
pub(super) fn is_in_use(folder: &Path) -> bool {
    let programs = files_in(&folder.join("bin"), "");

    !programs.is_disjoint(&files_in(Path::new("/proc"), "exe"))
}

/// Device and number of `name` in each entry of `folder`, or of the entry itself.
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
    fn other_inputs_supersede() {
        assert!(is_superseded("tools-0123456789ab", "tools-ba9876543210"));
        assert!(!is_superseded("tools-0123456789ab", "tools-0123456789ab"));
        assert!(!is_superseded("kwok-0123456789ab", "tools-0123456789ab"));
    }

    #[test]
    fn another_patch_release_supersedes_and_another_minor_one_does_not() {
        let newer = "kubernetes-v1.35.5-0123456789ab";

        assert!(is_superseded("kubernetes-v1.35.4-ba9876543210", newer));
        assert!(!is_superseded("kubernetes-v1.36.3-ba9876543210", newer));
        assert!(!is_superseded("v1.35.4-ba9876543210", newer));
    }

    #[test]
    fn what_has_no_digest_is_not_ours_to_remove() {
        for other in ["parts", "lock", "v1.35.4", "v1.35.4-images", "v1.35.4-0123"] {
            assert!(!is_superseded(other, "v1.35.4-0123456789ab"), "{other}");
        }
    }

    #[test]
    fn a_running_program_is_in_use() {
        let program = std::env::current_exe().unwrap();
        let scratch = Scratch::new("in-use");
        scratch.write("bin/another", "program");

        let unused = is_in_use(scratch.path());
        symlink(program, scratch.path().join("bin/it")).unwrap();
        let used = is_in_use(scratch.path());

        assert!(!unused && used);
    }
}
