//! `cargo xtask chart`: lints the Helm chart, and compares the rendered manifests with golden
//! files.
//!
//! ```text
//! charts/tests/
//!   values/NAME.yaml     values that a user may set
//!   golden/NAME.yaml     the manifests that helm renders with these values
//!   refused/NAME.yaml    values that the chart must refuse; line 1 has the expected error
//! ```

mod helm;
mod refused;

use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use helm::Helm;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Write the rendered manifests to the golden files instead of comparing them.
    #[arg(long)]
    update: bool,
}

/// Checks the chart, or writes the golden files with `--update`.
///
/// # Errors
///
/// Returns the errors of [`check`]. With `--update`, returns an error if a file cannot be written.
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    let start = Instant::now();
    console::step("Chart");
    let outcome = if options.update {
        update(shell)?
    } else {
        check(shell)?
    };
    console::done(outcome, start.elapsed());

    Ok(())
}

/// Returns whether helm is installed or was built on this machine. Without helm, [`check`] fails.
pub(crate) fn is_checkable() -> bool {
    Helm::find().is_some()
}

/// Checks the chart, and returns a summary with the numbers of renderings and refusals.
///
/// # Errors
///
/// Returns an error if helm is missing, if its lint fails, if the output differs from a
/// golden file, or if the chart accepts values that it must refuse.
pub(crate) fn check(shell: &mut Shell) -> Result<String> {
    let helm = helm()?;
    let mut problems = Vec::new();
    let values = files("values")?;
    let refused = files("refused")?;
    for values in &values {
        problems.extend(helm.lint(shell, values)?);
        let rendered = helm.template(shell, values)??;
        let golden = golden(values);
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        problems.extend(difference(&name(&golden), &expected, &rendered));
    }
    for values in &refused {
        let rendered = helm.template(shell, values)?;
        problems.extend(refused::problem(values, rendered)?);
    }
    if !problems.is_empty() {
        bail!("the chart has problems:\n    {}", problems.join("\n    "));
    }

    Ok(format!(
        "{} renderings, {} refusals",
        values.len(),
        refused.len()
    ))
}

fn update(shell: &mut Shell) -> Result<String> {
    let helm = helm()?;
    let values = files("values")?;
    for values in &values {
        let rendered = helm.template(shell, values)??;
        let golden = golden(values);
        fs::write(&golden, rendered)
            .with_context(|| format!("failed to write {}", golden.display()))?;
    }

    Ok(format!("{} renderings: see `git diff`", values.len()))
}

fn helm() -> Result<Helm> {
    Helm::find().context(
        "helm is missing: `cargo xtask liqoctl` builds it, or install it from https://helm.sh",
    )
}

fn chart() -> PathBuf {
    workspace::root().join("charts/liqo")
}

/// Returns the folder of the test data. It is outside of the chart, so that a packaged chart does
/// not contain it.
fn tests() -> PathBuf {
    workspace::root().join("charts/tests")
}

/// Returns the test files of a kind (`values`, `golden` or `refused`), sorted by name.
fn files(kind: &str) -> Result<Vec<PathBuf>> {
    let folder = tests().join(kind);
    let entries =
        fs::read_dir(&folder).with_context(|| format!("failed to read {}", folder.display()))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();

    Ok(files)
}

/// Returns the path of the golden file for a values file.
fn golden(values: &Path) -> PathBuf {
    let name = values.file_name().unwrap_or_default();

    tests().join("golden").join(name)
}

/// Returns a file's path relative to the checkout.
fn name(path: &Path) -> String {
    let short = path.strip_prefix(workspace::root()).unwrap_or(path);

    short.display().to_string()
}

/// Describes the first line that differs; returns `None` if the texts are equal.
fn difference(file: &str, expected: &str, rendered: &str) -> Option<String> {
    if expected == rendered {
        return None;
    }
    let mut lines = expected.lines();
    let mut number = 0;
    let differing = rendered.lines().find(|line| {
        number += 1;
        lines.next() != Some(*line)
    });
    let differing = differing.unwrap_or("the end");

    Some(format!(
        "{file}, line {number}: the chart now renders {:?}; if this is intended, run `cargo xtask chart --update`",
        differing.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_output_is_no_difference() {
        assert_eq!(difference("a.yaml", "a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn the_first_differing_line_is_named() {
        let problem = difference("a.yaml", "a\nb\nc\n", "a\n  x\nc\n").unwrap();

        assert!(problem.starts_with("a.yaml, line 2"), "{problem}");
        assert!(problem.contains("\"x\""), "{problem}");
    }

    #[test]
    fn a_missing_line_is_a_difference() {
        let problem = difference("a.yaml", "a\nb\n", "a\n").unwrap();

        assert!(problem.contains("the end"), "{problem}");
    }
}
