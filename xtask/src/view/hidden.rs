//! Finds the files of a folder that a view hides.

use anyhow::{Context as _, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of Debian's alternatives system. `/usr/bin/awk`, for example, is a symbolic link to
/// `awk` in this folder, which is a symbolic link to the program of one package.
const ALTERNATIVES: &str = "/etc/alternatives";

/// The word in a line of `dpkg-query --listfiles` that precedes the path of a diverted file.
const DIVERTED: &str = "diverted ";

/// The files that a view does not hide.
#[derive(Debug)]
pub(super) struct Kept(BTreeSet<PathBuf>);

impl Kept {
    /// Parses the output of `dpkg-query --listfiles`, and resolves symbolic links of folders. A
    /// package may list `/bin/ping` although `/bin` is a link to `/usr/bin`. The result then
    /// contains `/usr/bin/ping`.
    pub(super) fn parse(listing: &str) -> Self {
        let mut folders = BTreeMap::new();
        let paths = listing.lines().filter_map(|line| {
            // Examples of such lines are "diverted by dash to: /bin/sh.distrib" and "locally
            // diverted to: /bin/x".
            let path = match line.split_once(DIVERTED) {
                Some((_, diversion)) => diversion.split_once(": ")?.1,
                None => line,
            };
            let path = Path::new(path);
            let (folder, name) = (path.parent()?, path.file_name()?);
            let folder = folders
                .entry(folder.to_owned())
                .or_insert_with(|| folder.canonicalize().ok())
                .as_ref()?;
            Some(folder.join(name))
        });

        Self(paths.collect())
    }

    pub(super) fn only(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(paths.into_iter().collect())
    }

    /// Returns the files and folders below `folder` to hide. The content of a hidden folder is not
    /// listed.
    ///
    /// # Errors
    ///
    /// Returns an error if a folder cannot be read.
    pub(super) fn hidden_in(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        let mut hidden = Vec::new();
        self.collect(folder, &mut hidden)?;
        hidden.sort();

        Ok(hidden)
    }

    fn collect(&self, folder: &Path, hidden: &mut Vec<PathBuf>) -> Result<()> {
        let entries =
            fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("failed to list {}", folder.display()))?;
            let path = entry.path();
            if !self.is_kept(&path) {
                hidden.push(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.collect(&path, hidden)?;
            }
        }

        Ok(())
    }

    fn is_kept(&self, path: &Path) -> bool {
        let is_alternative = || {
            let target = fs::read_link(path).ok()?;
            let target = target
                .starts_with(ALTERNATIVES)
                .then(|| path.canonicalize());
            Some(self.0.contains(&target?.ok()?))
        };

        self.0.contains(path) || is_alternative().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_files_of_packages_are_kept() {
        let folder = Folder::new("packages");
        for name in ["git", "gcc", "sys/a.h", "sys/b.h", "curl/curl.h"] {
            folder.create(name);
        }
        let kept = Kept::only(["gcc", "sys", "sys/a.h"].map(|name| folder.0.join(name)));

        let hidden = kept.hidden_in(&folder.0).unwrap();

        let expected = ["curl", "git", "sys/b.h"].map(|name| folder.0.join(name));
        assert_eq!(hidden, expected);
    }

    #[test]
    fn a_path_through_a_linked_folder_is_the_same_file() {
        let folder = Folder::new("merged");
        folder.create("usr/bin/ping");
        symlink("usr/bin", folder.0.join("bin")).unwrap();
        let listing = folder.0.join("bin/ping").display().to_string();

        let kept = Kept::parse(&listing);

        assert_eq!(
            kept.hidden_in(&folder.0.join("usr/bin")).unwrap(),
            Vec::<PathBuf>::new()
        );
    }

    #[test]
    fn a_diverted_file_is_kept_under_its_new_path() {
        let folder = Folder::new("diverted");
        folder.create("sh.distrib");
        let listing = format!(
            "{0}/sh\ndiverted by dash to: {0}/sh.distrib\nlocally diverted to: {0}/x\n",
            folder.0.display()
        );

        let kept = Kept::parse(&listing);

        assert_eq!(kept.hidden_in(&folder.0).unwrap(), Vec::<PathBuf>::new());
        assert!(kept.0.contains(&folder.0.join("x")));
    }

    #[test]
    fn an_alternative_is_kept_only_with_its_program() {
        let cc = Path::new("/usr/bin/cc");
        let compiler = cc.canonicalize().unwrap();

        assert!(Kept::only([compiler]).is_kept(cc));
        assert!(!Kept::only([]).is_kept(cc));
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = env::temp_dir().join(format!("liqo-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();

            Self(folder.canonicalize().unwrap())
        }

        fn create(&self, name: &str) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
