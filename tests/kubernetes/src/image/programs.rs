//! Collects programs with their loaders and libraries for an image.

use super::elf::Elf;
use super::{Platform, Tree};
use anyhow::{Context as _, Result};
use std::collections::{BTreeSet, VecDeque};
use std::env;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};

/// The maximum number of symlinks in a path, which equals the kernel's limit (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;

/// A root directory with programs. This is the root directory of the machine, or a folder of
/// unpacked packages.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    /// The folders of programs, in order of preference.
    programs: Vec<PathBuf>,
}

impl System {
    /// Returns this machine's root directory. System folders precede those of `PATH`, so that
    /// images do not depend on the user.
    pub fn machine() -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut system = Self::at("/");
        system.programs.extend(env::split_paths(&path));

        system
    }

    /// Returns the root directory `root`, into which packages were unpacked.
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
    /// All files keep their paths. Symlinks are replaced by the files that they refer to.
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

    /// Returns the path of a program, relative to the root directory of the system.
    fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| self.resolve(path).is_some_and(|file| file.is_file()))
    }

    /// Finds the library `name`, which the program or library `user` at `path` needs. The library
    /// must have the same platform as `user`. Like the dynamic loader, searches the run path of
    /// `user` first.
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

    /// Resolves all symlinks of a path. Absolute symlinks refer to the root directory of the
    /// system.
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

    /// Resolves the first symlink of a path. Returns the file if the path has no symlink.
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

/// Returns the default folders of libraries. Debian's folders precede those of other distributions.
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
