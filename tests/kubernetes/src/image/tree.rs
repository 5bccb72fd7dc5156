//! Builds the tree of files that a layer contains.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The maximum number of symlinks in a path, which equals the kernel's limit (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;

/// The permissions of executable files and of other files in the image. The permissions of the
/// source files may differ.
const PROGRAM: u32 = 0o755;
const FILE: u32 = 0o644;

/// Directories, files and symlinks by their path. Root owns all of them.
///
/// Paths are absolute. Symlinks in the tree are resolved: if `/bin` is a symlink to `usr/bin`,
/// `/bin/sh` is added as `/usr/bin/sh`. Missing parent directories are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    /// The entries by path without the leading slash. In this order, parents precede their
    /// children.
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Directory { mode: u32 },
    File { source: PathBuf, mode: u32 },
    Bytes { content: Vec<u8>, mode: u32 },
    Symlink { target: String },
}

impl Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { .. } => f.write_str("a directory"),
            Self::File { source, .. } => write!(f, "the file {}", source.display()),
            Self::Bytes { content, .. } => write!(f, "a file of {} bytes", content.len()),
            Self::Symlink { target } => write!(f, "a symlink to {target}"),
        }
    }
}

impl Tree {
    /// Creates a tree without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a tree in which `/bin`, `/sbin`, `/lib` and `/lib64` are symlinks into `/usr`, as in
    /// current distributions. All users may write to `/tmp`.
    pub fn merged_usr() -> Self {
        let mut entries = BTreeMap::new();
        for name in ["bin", "lib", "lib64", "sbin"] {
            let target = format!("usr/{name}");
            entries.insert(target.clone(), Entry::Directory { mode: PROGRAM });
            entries.insert(name.to_owned(), Entry::Symlink { target });
        }
        entries.insert("tmp".to_owned(), Entry::Directory { mode: 0o1777 });
        entries.insert("usr".to_owned(), Entry::Directory { mode: PROGRAM });

        Self { entries }
    }

    /// Adds a directory, or sets the permissions of an existing one.
    ///
    /// # Errors
    ///
    /// Returns an error if the path exists and is not a directory.
    pub fn directory(&mut self, path: &str, mode: u32) -> Result<()> {
        let place = self.place(path)?;
        match self.entries.get(&place) {
            None | Some(Entry::Directory { .. }) => {
                self.entries.insert(place, Entry::Directory { mode });
                Ok(())
            }
            Some(other) => bail!("/{place} is {other} already, and no directory"),
        }
    }

    /// Adds a file of this machine, which is read when the image is written. The file is executable
    /// in the image if it is executable on the machine.
    ///
    /// # Errors
    ///
    /// Returns an error if `source` is not a file, or if another entry exists at `path`.
    pub fn file(&mut self, path: &str, source: &Path) -> Result<()> {
        let metadata =
            fs::metadata(source).with_context(|| format!("failed to find {}", source.display()))?;
        if !metadata.is_file() {
            bail!("{} is no file", source.display());
        }
        let executable = metadata.permissions().mode() & 0o111 != 0;

        self.add(
            path,
            Entry::File {
                source: source.to_owned(),
                mode: if executable { PROGRAM } else { FILE },
            },
        )
    }

    /// Adds a file with this content. The file is not executable.
    ///
    /// # Errors
    ///
    /// Returns an error if another entry exists at `path`.
    pub fn bytes(&mut self, path: &str, content: impl Into<Vec<u8>>) -> Result<()> {
        self.add(
            path,
            Entry::Bytes {
                content: content.into(),
                mode: FILE,
            },
        )
    }

    /// Adds a symlink. Its target may be missing.
    ///
    /// # Errors
    ///
    /// Returns an error if another entry exists at `path`.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<()> {
        self.add(
            path,
            Entry::Symlink {
                target: target.to_owned(),
            },
        )
    }

    /// Returns whether an entry exists at `path`. Does not follow a symlink at `path` itself.
    pub fn contains(&self, path: &str) -> bool {
        self.place(path)
            .is_ok_and(|place| self.entries.contains_key(&place))
    }

    /// Returns all entries, sorted by path.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries
            .iter()
            .map(|(path, entry)| (path.as_str(), entry))
    }

    fn add(&mut self, path: &str, entry: Entry) -> Result<()> {
        let place = self.place(path)?;
        let parents: Vec<_> = place.match_indices('/').map(|(end, _)| end).collect();
        for end in parents {
            let directory = Entry::Directory { mode: PROGRAM };
            let parent = self.entries.entry(place[..end].to_owned());
            let parent = parent.or_insert(directory);
            if !matches!(parent, Entry::Directory { .. }) {
                bail!("/{} is no directory, so /{place} cannot be", &place[..end]);
            }
        }

        match self.entries.get(&place) {
            Some(there) if *there != entry => {
                bail!("/{place} is {there} already, so it cannot be {entry}")
            }
            _ => {
                self.entries.insert(place, entry);
                Ok(())
            }
        }
    }

    /// Resolves the symlinks in the parent directories of a path, but not a symlink at the path
    /// itself.
    fn place(&self, path: &str) -> Result<String> {
        let mut place = path.to_owned();
        for _ in 0..SYMLINKS_MAX {
            let components = components(&place)?;
            match self.first_symlink(&components) {
                None => return Ok(components.join("/")),
                Some(followed) => place = followed,
            }
        }

        bail!("{path} has more than {SYMLINKS_MAX} symlinks")
    }

    /// Replaces the first symlink in the parent directories of a path by its target.
    fn first_symlink(&self, components: &[&str]) -> Option<String> {
        (1..components.len()).find_map(|end| {
            let Entry::Symlink { target } = self.entries.get(&components[..end].join("/"))? else {
                return None;
            };
            let parent = components[..end - 1].join("/");
            let rest = components[end..].join("/");

            Some(match target.strip_prefix('/') {
                Some(target) => format!("/{target}/{rest}"),
                None => format!("/{parent}/{target}/{rest}"),
            })
        })
    }
}

/// Returns the components of an absolute path. `..` at the root has no effect.
fn components(path: &str) -> Result<Vec<&str>> {
    let Some(relative) = path.strip_prefix('/') else {
        bail!("{path:?} is no absolute path");
    };
    let mut components = Vec::new();
    for component in relative.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop();
            }
            name => components.push(name),
        }
    }
    if components.is_empty() {
        bail!("{path:?} is the root itself");
    }

    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_bin_is_added_to_usr() {
        let mut tree = Tree::merged_usr();

        tree.bytes("/lib64/x86/ld.so", "loader").unwrap();

        assert!(tree.contains("/usr/lib64/x86/ld.so"));
        assert!(tree.contains("/lib64/x86/ld.so"));
    }

    #[test]
    fn a_target_may_be_relative_or_absolute() {
        let mut tree = Tree::new();
        tree.symlink("/etc/alternatives", "/var/lib/chosen")
            .unwrap();
        tree.symlink("/a/b", "../c").unwrap();

        tree.bytes("/etc/alternatives/nc", "").unwrap();
        tree.bytes("/a/b/d", "").unwrap();

        let paths: Vec<_> = tree.entries().map(|(path, _)| path).collect();
        assert_eq!(
            paths,
            [
                "a",
                "a/b",
                "c",
                "c/d",
                "etc",
                "etc/alternatives",
                "var",
                "var/lib",
                "var/lib/chosen",
                "var/lib/chosen/nc"
            ]
        );
    }

    #[test]
    fn a_cycle_of_symlinks_is_refused() {
        let mut tree = Tree::new();
        tree.symlink("/a", "/b").unwrap();
        tree.symlink("/b", "/a").unwrap();

        let error = tree.bytes("/a/file", "").unwrap_err();

        assert!(error.to_string().contains("more than 40 symlinks"));
    }

    #[test]
    fn an_entry_may_be_repeated_but_not_replaced() {
        let mut tree = Tree::new();
        tree.bytes("/etc/group", "root").unwrap();

        tree.bytes("/etc/group", "root").unwrap();

        assert!(tree.bytes("/etc/group", "wheel").is_err());
        assert!(tree.bytes("/etc/group/more", "").is_err());
        assert!(tree.directory("/etc/group", 0o755).is_err());
        assert!(tree.bytes("relative", "").is_err());
        assert!(tree.bytes("/etc/..", "").is_err());
    }

    #[test]
    fn the_mode_of_a_directory_can_be_set_later() {
        let mut tree = Tree::new();
        tree.bytes("/tmp/file", "").unwrap();

        tree.directory("/tmp", 0o1777).unwrap();

        let (_, entry) = tree.entries().next().unwrap();
        assert_eq!(*entry, Entry::Directory { mode: 0o1777 });
    }
}
