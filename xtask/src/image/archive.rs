//! Has an archive written by the crate that knows how.
//!
//! This crate stays small: what writes archives belongs to the laboratory, which is
//! large, and built only when an image is.

use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What `image-archive` is told.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    /// The file to write.
    pub(super) archive: PathBuf,
    /// The image's complete names.
    pub(super) names: Vec<String>,
    /// What is known about it, by the last part of the key.
    #[serde(serialize_with = "qualified")]
    pub(super) labels: BTreeMap<&'static str, String>,
    /// What it starts.
    pub(super) entrypoint: Vec<String>,
    /// What is in it.
    pub(super) platforms: Vec<Content>,
}

/// What is in an image for one processor.
#[derive(Debug, Serialize)]
pub(super) struct Content {
    pub(super) platform: &'static str,
    /// Files by their path in the image.
    pub(super) files: BTreeMap<String, PathBuf>,
    /// Programs, to be taken from `system`, and their packages.
    pub(super) programs: BTreeMap<&'static str, &'static str>,
    /// The root of the system to take programs from.
    pub(super) system: PathBuf,
}

/// Writes an archive.
///
/// # Errors
///
/// Returns an error if the tool does not build or fails; it has then said why.
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
