//! Collects programs for an image, with their loader and libraries.

use super::elf::Elf;
use super::{Platform, Tree};
use anyhow::{Context as _, Result};
use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

/// The most symlinks in one path, like that of the kernel (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;

/// A source of programs: this machine, or a folder of unpacked packages.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    /// The folders of programs, in order of preference.
    programs: Vec<PathBuf>,
}

impl System {
    /// This machine. Its system folders precede `PATH`, so that images do not depend on the user.
    pub fn machine() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut system = Self::at("/");
        system.programs.extend(env::split_paths(&path));

        system
    }

    /// The packages unpacked into `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        let programs = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

        Self {
            root: root.into(),
            programs: programs.map(PathBuf::from).into(),
        }
    }

    /// Adds the program `name`, its loader and its libraries to `tree`. `package` is the Debian
    /// package of the program.
    ///
    /// All files keep their paths; symlinks to them are resolved.
    ///
    /// # Errors
    ///
    /// Returns an error that names the missing program and its package, or the missing library.
    pub fn add(&self, tree: &mut Tree, name: &str, package: &str) -> Result<()> {
        let path = self.program(name).with_context(|| {
            format!("{name} is missing: install the package that contains it ({package} in Debian)")
        })?;
        let mut added = BTreeSet::new();
        let mut waiting = VecDeque::from([path]);
        while let Some(path) = waiting.pop_front() {
            if !added.insert(path.clone()) {
                continue;
            }
            let file = self.resolve(&path).context("a symlink is dangling")?;
            let elf = Elf::read(&file)?;
            tree.file(&path.to_string_lossy(), &file)?;

            waiting.extend(elf.loader.as_ref().map(PathBuf::from));
            for library in &elf.needed {
                waiting.push_back(self.library(library, &elf, &path).with_context(|| {
                    format!("{name} needs {library}, which is in no folder of libraries")
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

    /// Finds a library of the same platform as the loader does: first in the run path of `user`, the
    /// program at `path`, then in the system's folders.
    fn library(&self, name: &str, user: &Elf, path: &Path) -> Option<PathBuf> {
        let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let run_path = user.folders.iter().map(|folder| {
            let folder = folder.replace("${ORIGIN}", &origin);
            PathBuf::from(folder.replace("$ORIGIN", &origin))
        });

        run_path
            .chain(folders(user.platform))
            .map(|folder| folder.join(name))
            .find(|path| {
                let elf = self.resolve(path).and_then(|file| Elf::read(&file).ok());
                elf.is_some_and(|elf| elf.platform == user.platform)
            })
    }

    /// Resolves a path within the system, including symlinks.
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

    /// Resolves the first symlink of a path, or returns the file.
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

/// The default folders of libraries: those of Debian, then those of other distributions.
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
