//! What is built together, from which sources and with which flags.

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

/// The result of one call of `go build`, kept as a whole.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name, as a person would say it.
    pub(super) name: String,
    /// Names the inputs: what was built from others is another thing.
    digest: String,
    /// The folder of the Go module.
    pub(super) module: PathBuf,
    /// The processor that it is built for; without one, the machine's own.
    pub(super) processor: Option<Processor>,
    /// Arguments of `go build`, but for the place of the result.
    pub(super) arguments: Vec<String>,
    /// What comes out.
    pub(super) programs: &'static [Program],
    /// The version of each program, by its name.
    pub(super) versions: BTreeMap<&'static str, String>,
}

/// One executable file.
#[derive(Debug)]
pub(super) struct Program {
    /// What the go command calls it, after the package.
    pub(super) built: &'static str,
    /// Where it belongs, below the folder of a part and that of them all.
    pub(super) place: &'static str,
    /// Names beside its own under which it is called.
    pub(super) links: &'static [&'static str],
    /// The module whose version is its own.
    module: &'static str,
}

impl Program {
    /// The name of the file.
    pub(super) fn name(&self) -> &'static str {
        self.place.rsplit('/').next().unwrap_or(self.place)
    }
}

/// Returns everything that clusters of `release` need.
///
/// # Errors
///
/// Returns an error that names the file below `modules` that cannot be read, or
/// that pins no version of a program.
pub(super) fn all(release: &Release, modules: &Path) -> Result<Vec<Part>> {
    recipe::all(release)
        .into_iter()
        .map(|recipe| {
            let folder = modules.join(recipe.folder);
            Part::new(recipe, folder, None, read)
        })
        .collect()
}

/// Returns the part that has only helm, for this processor.
///
/// # Errors
///
/// As [`all`].
pub(super) fn helm(processor: Processor, modules: &Path) -> Result<Part> {
    let recipe = recipe::helm(format!("helm-{}", processor.as_str()));
    let folder = modules.join(recipe.folder);

    Part::new(recipe, folder, Some(processor), read)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))
}

impl Part {
    /// Follows `recipe` with a module that `read` knows the files of.
    fn new(
        recipe: Recipe,
        module: PathBuf,
        processor: Option<Processor>,
        read: impl Fn(&Path) -> Result<String>,
    ) -> Result<Self> {
        let Recipe {
            modfile, programs, ..
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
            name: recipe.name,
        })
    }

    /// The name of the folder that keeps it.
    pub(super) fn folder(&self) -> String {
        format!("{}-{}", self.name, self.digest)
    }
}

/// The name of the folder that holds all of `parts`.
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
