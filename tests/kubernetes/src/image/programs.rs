//! Programs for an image, with the loader and the libraries that they need.

use super::elf::Elf;
use super::{Platform, Tree};
use anyhow::{Context as _, Result};
use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

/// The kernel gives up after as many symlinks in one path (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;

/// A system whose programs are taken: this machine, or packages unpacked into a
/// folder.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    /// Where programs are, best first.
    programs: Vec<PathBuf>,
}

impl System {
    /// This machine. Its own programs come before those that a person put into
    /// PATH: images should not differ by who makes them.
    pub fn machine() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut system = Self::at("/");
        system.programs.extend(env::split_paths(&path));

        system
    }

    /// What was unpacked into `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let programs = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

        Self {
            root: root.into(),
            programs: programs.map(PathBuf::from).into(),
        }
    }

    /// Adds the program `name` to `tree`, and all that it needs to be started.
    /// `package` is Debian's package that has it.
    ///
    /// Everything keeps its path; symlinks on the way to a file are not kept.
    ///
    /// # Errors
    ///
    /// Returns an error that names the package if the program is missing, or the
    /// library that is.
    pub fn add(&self, tree: &mut Tree, name: &str, package: &str) -> Result<()> {
        let path = self.program(name).with_context(|| {
            format!("{name} is missing: install Debian's package {package}, or what has {name}")
        })?;
        let mut added = BTreeSet::new();
        let mut waiting = VecDeque::from([path]);
        while let Some(path) = waiting.pop_front() {
            if !added.insert(path.clone()) {
                continue;
            }
            let file = self.resolve(&path).context("a symlink leads nowhere")?;
            let elf = Elf::read(&file)?;
            tree.file(&path.to_string_lossy(), &file)?;

            waiting.extend(elf.loader.as_ref().map(PathBuf::from));
            for library in &elf.needed {
                waiting.push_back(self.library(library, &elf, &path).with_context(|| {
                    format!("{name} needs {library}, which no folder of libraries has")
                })?);
            }
        }

        Ok(())
    }

    /// Finds a program, as a path in the system.
    fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| self.resolve(path).is_some_and(|file| file.is_file()))
    }

    /// Finds a library as the loader would: where `user`, which is at `path`, wants
    /// it to be looked for, then in the system's folders, and of the same platform.
    fn library(&self, name: &str, user: &Elf, path: &Path) -> Option<PathBuf> {
        let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let wanted = user.folders.iter().map(|folder| {
            let folder = folder.replace("${ORIGIN}", &origin);
            PathBuf::from(folder.replace("$ORIGIN", &origin))
        });

        wanted
            .chain(folders(user.platform))
            .map(|folder| folder.join(name))
            .find(|path| {
                let elf = self.resolve(path).and_then(|file| Elf::read(&file).ok());
                elf.is_some_and(|elf| elf.platform == user.platform)
            })
    }

    /// The file at a path of the system, its symlinks followed within the system.
    fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..SYMLINKS_MAX {
            match self.follow(&path) {
                ControlFlow::Break(file) => return file.exists().then_some(file),
                ControlFlow::Continue(followed) => path = followed,
            }
        }

        None
    }

    /// Follows the first symlink in a path, or tells which file it is.
    fn follow(&self, path: &Path) -> ControlFlow<PathBuf, PathBuf> {
        let mut passed = PathBuf::new();
        let mut components = path.components();
        while let Some(component) = components.next() {
            match component {
                Component::Normal(name) => {
                    if let Ok(target) = fs::read_link(self.root.join(&passed).join(name)) {
                        let followed = Path::new("/").join(passed).join(target);
                        return ControlFlow::Continue(followed.join(components.as_path()));
                    }
                    passed.push(name);
                }
                Component::ParentDir => {
                    passed.pop();
                }
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }

        ControlFlow::Break(self.root.join(passed))
    }
}

/// The loader's own folders of libraries: Debian's, then those of others.
fn folders(platform: Platform) -> impl Iterator<Item = PathBuf> {
    let triple = match platform {
        Platform::Amd64 => "x86_64-linux-gnu",
        Platform::Arm64 => "aarch64-linux-gnu",
    };
    let of_debian = ["/usr/lib", "/lib", "/usr/local/lib"];
    let of_debian = of_debian.map(|folder| Path::new(folder).join(triple));
    let of_others = ["/usr/lib64", "/lib64", "/usr/lib", "/lib", "/usr/local/lib"];

    of_debian.into_iter().chain(of_others.map(PathBuf::from))
}

#[cfg(test)]
mod tests;
