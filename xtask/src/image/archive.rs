//! Writes image archives, with a program of the Kubernetes laboratory.
//!
//! That crate takes long to build, so it is built only when an image is.

use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The input of `image-archive`.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The path of the archive.
    pub(super) archive: PathBuf,
    /// The image's complete names.
    pub(super) names: Vec<String>,
    /// Labels by the last part of their keys, such as `title`.
    #[serde(serialize_with = "qualified")]
    pub(super) labels: BTreeMap<&'static str, String>,
    pub(super) entrypoint: Vec<String>,
    /// The content for each processor.
    pub(super) platforms: Vec<Content>,
}

/// The content of an image for one processor.
#[derive(Debug, Serialize)]
pub(super) struct Content {
    pub(super) platform: &'static str,
    /// Source files by their paths in the image.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Programs to copy from `system`, and their packages.
    pub(super) programs: BTreeMap<&'static str, &'static str>,
    /// The root folder of a system that has the programs.
    pub(super) system: PathBuf,
}

/// Writes an archive.
///
/// # Errors
///
/// Returns an error if the program does not build or fails; its output was shown.
pub(super) fn write(shell: &mut Shell, plan: &Plan) -> Result<()> {
    let plan = serde_json::to_string(plan).context("a path is not UTF-8")?;
    let mut tool = workspace::cargo(&["run", "--quiet", "--locked", "--package"]);
    tool.args(["kubernetes-lab", "--bin", "image-archive", "--", &plan]);

    shell.run(tool)
}

fn qualified<S: serde::Serializer>(
    labels: &BTreeMap<&'static str, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let labels = labels
        .iter()
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value));

    serializer.collect_map(labels)
}
