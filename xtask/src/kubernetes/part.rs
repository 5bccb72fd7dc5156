//! The parts of the cache: sources, flags and programs of each `go build`.

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

/// One call of `go build`, whose programs are cached together.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name in messages and in the cache.
    pub(super) name: String,
    /// The digest of all inputs: a part with other inputs has another folder.
    digest: String,
    /// The folder of the Go module.
    pub(super) module: PathBuf,
    /// The processor that it is built for; `None` is this machine's.
    pub(super) processor: Option<Processor>,
    /// The arguments of `go build`, without `-o`.
    pub(super) arguments: Vec<String>,
    pub(super) programs: &'static [Program],
    /// The version of each program, by the program's name.
    pub(super) versions: BTreeMap<&'static str, String>,
}

/// One executable file.
#[derive(Debug)]
pub(super) struct Program {
    /// The file name that `go build` derives from the package.
    pub(super) built: &'static str,
    /// Its path below the folder of the part, and below the folder of all parts.
    pub(super) place: &'static str,
    /// Further names of the program, as symbolic links.
    pub(super) links: &'static [&'static str],
    /// The module whose version the program has.
    module: &'static str,
}

impl Program {
    pub(super) fn name(&self) -> &'static str {
        self.place.rsplit('/').next().unwrap_or(self.place)
    }
}

/// Returns the parts that clusters of `release` need.
///
/// # Errors
///
/// Returns an error with the file below `modules` that cannot be read, or that does not
/// pin a program's version.
pub(super) fn all(release: &Release, modules: &Path) -> Result<Vec<Part>> {
    recipe::all(release)
        .into_iter()
        .map(|recipe| {
            let folder = modules.join(recipe.folder);
            Part::new(recipe, folder, None, read)
        })
        .collect()
}

/// Returns the part with helm alone, for `processor`.
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
    /// Resolves `recipe` for the Go module in the folder `module`, whose files `read` returns.
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

    /// The name of its folder in the cache.
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
