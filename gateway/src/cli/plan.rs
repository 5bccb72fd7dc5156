//! The command `gateway plan`.

use anyhow::{Context as _, anyhow};
use clap::Args;
use control_fabric::{Fabric, Objects};
use control_source::file;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Allocate the addresses that a fabric file does not specify.
///
/// Fills in the status of Networks, Configurations and IPs, and adds an IP object for each node.
/// Keeps existing allocations. Does not keep the comments of the file.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Plan {
    /// The fabric file, which the command replaces atomically; `-` reads from standard input and
    /// writes to standard output.
    file: PathBuf,

    /// Write the result to this file instead; `-` is standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gateway plan fabric.yaml
  gateway plan draft.yaml --output fabric.yaml
  gateway plan draft.yaml -o - | less
  cat cluster/*.yaml | gateway plan - > fabric.yaml";

impl Plan {
    pub(super) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let is_piped = self.file.as_os_str() == "-";
        let text = if is_piped {
            io::read_to_string(io::stdin()).context("failed to read standard input")?
        } else {
            file::read(&self.file)?
        };
        let name = if is_piped {
            Path::new("standard input")
        } else {
            &self.file
        };
        let invalid = |errors| anyhow!("{} is not valid:\n{errors}", name.display());

        let before = control_fabric::parse(&text).map_err(invalid)?;
        let mut after = control_fabric::parse(&text).map_err(invalid)?;
        control_fabric::plan(&mut after).map_err(invalid)?;
        Fabric::try_from(&after).map_err(invalid)?;

        let target = self.output.unwrap_or_else(|| self.file.clone());
        if target.as_os_str() == "-" {
            out.write_all(after.to_yaml().as_bytes())?;
            return Ok(());
        }
        let changes = changes(&before, &after)?;
        for change in &changes {
            writeln!(out, "{change}")?;
        }
        if before == after && target == self.file {
            writeln!(out, "{}: nothing to allocate", name.display())?;
            return Ok(());
        }
        replace(&target, &after.to_yaml())
            .with_context(|| format!("failed to write {}", target.display()))?;
        writeln!(
            out,
            "{}: written, {} changes",
            target.display(),
            changes.len()
        )?;

        Ok(())
    }
}

/// Compares the objects before and after the allocation; returns a line for each changed value.
///
/// An added or removed value has a line only if it belongs to a status.
fn changes(before: &Objects, after: &Objects) -> anyhow::Result<Vec<String>> {
    let before = leaves(before)?;
    let after = leaves(after)?;
    let changed = after
        .iter()
        .filter_map(|(path, value)| match before.get(path) {
            Some(old) if old == value => None,
            Some(old) => Some(format!("{path}: {old} -> {value}")),
            None => path
                .contains(" status.")
                .then(|| format!("{path}: {value}")),
        });
    let gone = before
        .iter()
        .filter(|(path, _)| path.contains(" status.") && !after.contains_key(*path))
        .map(|(path, old)| format!("{path}: {old} is released"));

    Ok(changed.chain(gone).collect())
}

/// Returns all scalar values of all objects; the keys have the form `Kind namespace/name path`.
fn leaves(objects: &Objects) -> anyhow::Result<BTreeMap<String, String>> {
    let mut leaves = BTreeMap::new();
    for object in objects.iter() {
        let value = serde_json::to_value(object)?;
        let metadata = object.metadata();
        let space = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let slash = if space.is_empty() { "" } else { "/" };
        collect(
            &format!("{} {space}{slash}{name} ", object.kind()),
            "",
            &value,
            &mut leaves,
        );
    }

    Ok(leaves)
}

fn collect(
    object: &str,
    path: &str,
    value: &serde_json::Value,
    leaves: &mut BTreeMap<String, String>,
) {
    use serde_json::Value;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                collect(object, &format!("{path}{dot}{name}"), value, leaves);
            }
        }
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                collect(object, &format!("{path}[{at}]"), value, leaves);
            }
        }
        Value::String(text) => {
            leaves.insert(format!("{object}{path}"), text.clone());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            leaves.insert(format!("{object}{path}"), value.to_string());
        }
    }
}

/// Replaces a file atomically; keeps its permissions.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // If `path` is a symbolic link, replaces the target and keeps the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = fs::metadata(&path).map_or(0o644, |metadata| metadata.permissions().mode());
    let mut draft = path.clone().into_os_string();
    draft.push(format!(".{}.tmp", std::process::id()));
    let draft = PathBuf::from(draft);

    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&draft)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}
