//! The parts of the cache. A part is the result of one call of `go build`.

mod recipe;
mod stamp;

use super::digest::Inputs;
use super::gomod;
use super::release::Release;
use crate::image::Processor;
use crate::setup::go::RELEASE;
use anyhow::{Context as _, Result};
pub(super) use recipe::ENVIRONMENT;
use recipe::Recipe;
use std::collections::BTreeMap;
use std::env::consts::ARCH;
use std::fs;
use std::path::{Path, PathBuf};

/// The inputs of one call of `go build`. The programs that the call builds are cached in one
/// folder.
#[derive(Debug)]
pub(super) struct Part {
    /// The name of the part in messages and in the cache.
    pub(super) name: String,
    /// The digest of all inputs. The folder's name contains the digest, so other inputs result in
    /// another folder.
    digest: String,
    /// The folder of the Go module.
    pub(super) module: PathBuf,
    /// The processor architecture of the programs; `None` for the architecture of this machine.
    pub(super) processor: Option<Processor>,
    /// The arguments of `go build` except `-o`.
    pub(super) arguments: Vec<String>,
    pub(super) programs: &'static [Program],
    /// The version of each program, by program name.
    pub(super) versions: BTreeMap<&'static str, String>,
    /// Whether each cluster needs the programs.
    is_essential: bool,
}

#[derive(Debug)]
pub(super) struct Program {
    /// The file name that `go build` derives from the Go package.
    pub(super) built: &'static str,
    /// The path of the program relative to the folder of its part. The path is the same in the
    /// folder of a whole release.
    pub(super) place: &'static str,
    /// Paths of symbolic links to the program, which give the program additional names.
    pub(super) links: &'static [&'static str],
    /// The Go module whose version is the version of the program.
    module: &'static str,
}

impl Program {
    pub(super) fn name(&self) -> &'static str {
        self.place.rsplit('/').next().unwrap_or(self.place)
    }
}

/// Returns all parts of a Kubernetes release.
///
/// # Errors
///
/// Returns an error that names the file below `modules` that cannot be read or lacks the version
/// of a program.
pub(super) fn all(release: &Release, modules: &Path) -> Result<Vec<Part>> {
    recipe::all(release)
        .into_iter()
        .map(|recipe| {
            let folder = modules.join(recipe.folder);
            Part::new(recipe, folder, None, read)
        })
        .collect()
}

/// Returns a part that contains only helm, built for `processor`.
///
/// # Errors
///
/// Returns the errors of [`all`].
pub(super) fn helm(processor: Processor, modules: &Path) -> Result<Part> {
    let recipe = recipe::helm(format!("helm-{}", processor.as_str()));
    let folder = modules.join(recipe.folder);

    Part::new(recipe, folder, Some(processor), read)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

impl Part {
    /// Resolves the versions of a recipe. `module` is the folder of the Go module, and `read`
    /// returns the content of a file.
    fn new(
        recipe: Recipe,
        module: PathBuf,
        processor: Option<Processor>,
        read: impl Fn(&Path) -> Result<String>,
    ) -> Result<Self> {
        let Recipe {
            modfile,
            programs,
            is_essential,
            ..
        } = &recipe;
        let pins = read(&module.join(modfile))?;
        let sums = modfile.replace(".mod", ".sum");
        let arguments = recipe
            .arguments(&pins)
            .with_context(|| format!("{} is incomplete", module.join(modfile).display()))?;

        let mut inputs = Inputs::default();
        inputs.add("go", RELEASE);
        let architecture = processor.map_or(ARCH, Processor::architecture);
        inputs.add("architecture", architecture);
        for (name, value) in ENVIRONMENT {
            inputs.add(name, value);
        }
        inputs.add("arguments", &arguments.join("\n"));
        inputs.add(modfile, &pins);
        inputs.add(&sums, &read(&module.join(&sums))?);
        for source in recipe.sources {
            inputs.add(source, &read(&module.join(source))?);
        }
        let mut versions = BTreeMap::new();
        for program in *programs {
            inputs.add(program.place, &program.links.join("\n"));
            let version = gomod::required(&pins, program.module).with_context(|| {
                let modfile = module.join(modfile);
                format!("{} does not require {}", modfile.display(), program.module)
            })?;
            for name in [program.name()].iter().chain(program.links) {
                versions.insert(*name, version.to_owned());
            }
        }

        Ok(Self {
            digest: inputs.digest(),
            module,
            processor,
            arguments,
            programs,
            versions,
            is_essential: *is_essential,
            name: recipe.name,
        })
    }

    /// Returns whether each cluster needs the programs of the part.
    pub(super) fn is_essential(&self) -> bool {
        self.is_essential
    }

    /// Returns the name of the part's folder in the cache.
    pub(super) fn folder(&self) -> String {
        format!("{}-{}", self.name, self.digest)
    }
}

/// Returns the name of the folder that contains the programs of all `parts`.
pub(super) fn folder_of_all(version: &str, parts: &[Part]) -> String {
    let mut inputs = Inputs::default();
    for part in parts {
        inputs.add(&part.name, &part.digest);
    }

    format!("{version}-{}", inputs.digest())
}

#[cfg(test)]
pub(super) use tests::of_this_checkout;

#[cfg(test)]
mod tests;
