//! Writes image archives with the program `image-archive` of the Kubernetes laboratory.
//!
//! The program is built only when an image is written, because its crate takes long to build.

use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The input of `image-archive`, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) archive: PathBuf,
    /// The full names of the image, with registry and tag.
    pub(super) names: Vec<String>,
    /// Label values by label key without the prefix `org.opencontainers.image.`, for example
    /// `title`.
    #[serde(serialize_with = "qualified")]
    pub(super) labels: BTreeMap<&'static str, String>,
    pub(super) entrypoint: Vec<String>,
    /// The content for each processor architecture.
    pub(super) platforms: Vec<Content>,
}

/// The content of an image for one processor architecture.
#[derive(Debug, Serialize)]
pub(super) struct Content {
    pub(super) platform: &'static str,
    /// Paths of the source files, by path in the image.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// External programs to copy from [`Self::system`], with their Debian packages.
    pub(super) programs: BTreeMap<&'static str, &'static str>,
    /// The root folder of a Debian system that contains the external programs.
    pub(super) system: PathBuf,
}

/// Writes an archive by running `image-archive`.
///
/// # Errors
///
/// Returns an error if the program does not build or fails. The program's output is already on the
/// terminal.
pub(super) fn write(shell: &mut Shell, plan: &Plan) -> Result<()> {
    let plan = serde_json::to_string(plan).context("a path is not UTF-8")?;
    let mut tool = Command::new(workspace::program(shell, "image-archive")?);
    tool.arg(&plan);

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
