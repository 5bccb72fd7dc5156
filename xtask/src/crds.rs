//! `cargo xtask crds`: generates the chart's custom resource definitions from the Rust types.
//!
//! An example program of `control/api` generates the definitions. That crate takes minutes to
//! build, so `xtask` starts the program instead of depending on the crate. The schemas of
//! Kubernetes' types within the definitions are derived from upstream's definitions before.

mod embedded;

use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Write nothing, and fail if a file differs from the generated definition.
    #[arg(long)]
    check: bool,

    /// Replace the committed copy of upstream's definitions by the definitions in this folder of
    /// a checkout of Liqo (deployments/liqo/charts/liqo-crds/crds).
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    upstream: Option<PathBuf>,
}

/// The committed copy of upstream's definitions. The tests of `control/api` compare with it.
const UPSTREAM: &str = "control/api/src/tests/upstream.json";

/// The schemas of Kubernetes' types that Liqo's kinds embed, derived from [`UPSTREAM`].
const EMBEDDED: &str = "control/api/src/schema/kubernetes.json";

/// Writes the definitions, or compares them with the files if `--check` is given.
///
/// # Errors
///
/// Returns an error if the definitions cannot be generated or written. With `--check`, returns an
/// error if the definitions differ from the files.
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    let start = Instant::now();
    console::step("Custom resource definitions");
    let outcome = if options.check {
        check(shell)?
    } else {
        if let Some(folder) = &options.upstream {
            write_file(UPSTREAM, &upstream(shell, folder)?)?;
        }
        write_file(EMBEDDED, &embedded::derive(&read_file(UPSTREAM)?)?)?;
        let wanted = wanted(shell)?;
        write(&folder(), &wanted)?;
        format!("{} files in {}", wanted.len(), folder().display())
    };
    console::done(outcome, start.elapsed());

    Ok(())
}

/// Checks that the chart's definitions equal the generated definitions. Returns a summary with the
/// number of definitions.
///
/// # Errors
///
/// Returns an error that names each differing file and the remedy.
pub(crate) fn check(shell: &mut Shell) -> Result<String> {
    if read_file(EMBEDDED)? != embedded::derive(&read_file(UPSTREAM)?)? {
        bail!("{EMBEDDED} differs from {UPSTREAM}; run `cargo xtask crds`");
    }
    let wanted = wanted(shell)?;
    let stale = stale(&read(&folder())?, &wanted);
    if !stale.is_empty() {
        bail!(
            "these definitions differ from the types in control/api: {}; run `cargo xtask crds`",
            stale.join(", ")
        );
    }

    Ok(format!("{} kinds", wanted.len()))
}

/// Returns the folder in which Helm looks for custom resource definitions.
fn folder() -> PathBuf {
    workspace::root().join("charts/liqo/crds")
}

/// File contents by file name.
type Files = BTreeMap<String, String>;

/// Generates the definitions from the current Rust types.
fn wanted(shell: &mut Shell) -> Result<Files> {
    serde_json::from_slice(&example(shell, "crds", None)?)
        .context("the generated definitions are not a JSON object of strings")
}

/// Returns the content of [`UPSTREAM`] for the definitions in `folder`.
fn upstream(shell: &mut Shell, folder: &Path) -> Result<String> {
    let folder = std::path::absolute(folder)?;
    let specs = serde_json::from_slice(&example(shell, "upstream", Some(&folder))?)
        .context("upstream's definitions are not a JSON object")?;

    Ok(embedded::lines(&specs))
}

/// Runs an example program of `control/api` and returns its standard output.
fn example(shell: &mut Shell, name: &str, argument: Option<&Path>) -> Result<Vec<u8>> {
    let mut program = Command::new(workspace::example(shell, name)?);
    program.args(argument).current_dir(workspace::root());
    let output = shell.capture(program)?;
    if !output.status.success() {
        bail!("the example {name} of control/api failed: see above");
    }

    Ok(output.stdout)
}

fn read_file(path: &str) -> Result<String> {
    fs::read_to_string(workspace::root().join(path))
        .with_context(|| format!("failed to read {path}"))
}

fn write_file(path: &str, text: &str) -> Result<()> {
    fs::write(workspace::root().join(path), text).with_context(|| format!("failed to write {path}"))
}

fn read(folder: &Path) -> Result<Files> {
    let name = |path: &Path| path.file_name().map(|it| it.to_string_lossy().into_owned());
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Files::new());
    };
    let mut files = Files::new();
    for entry in entries {
        let path = entry?.path();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        files.extend(name(&path).map(|name| (name, text)));
    }

    Ok(files)
}

/// Describes each file that differs from the wanted files.
fn stale(found: &Files, wanted: &Files) -> Vec<String> {
    let differing = wanted
        .iter()
        .filter_map(|(name, text)| match found.get(name) {
            None => Some(format!("{name} (missing)")),
            Some(found) if found != text => Some(format!("{name} (stale)")),
            Some(_) => None,
        });
    let superfluous = found
        .keys()
        .filter(|name| !wanted.contains_key(*name))
        .map(|name| format!("{name} (unknown)"));

    differing.chain(superfluous).collect()
}

/// Writes the wanted files, and removes all other files from the folder.
fn write(folder: &Path, wanted: &Files) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("failed to create {}", folder.display()))?;
    for name in read(folder)?.keys().filter(|it| !wanted.contains_key(*it)) {
        let path = folder.join(name);
        fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))?;
    }
    for (name, text) in wanted {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_difference_is_named_with_its_reason() {
        let found = files(&[("a.yaml", "old"), ("b.yaml", "same"), ("c.yaml", "gone")]);
        let wanted = files(&[("a.yaml", "new"), ("b.yaml", "same"), ("d.yaml", "new")]);

        let stale = stale(&found, &wanted);

        assert_eq!(
            stale,
            ["a.yaml (stale)", "d.yaml (missing)", "c.yaml (unknown)"]
        );
    }

    #[test]
    fn written_files_are_current() {
        let folder = std::env::temp_dir().join(format!("liqo-crds-{}", std::process::id()));
        write(&folder, &files(&[("old.yaml", "a removed kind")])).unwrap();
        let wanted = files(&[("a.yaml", "a"), ("b.yaml", "b")]);

        write(&folder, &wanted).unwrap();
        let found = read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();

        assert_eq!(found, wanted);
    }

    fn files(pairs: &[(&str, &str)]) -> Files {
        let owned = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        pairs.iter().map(owned).collect()
    }
}
