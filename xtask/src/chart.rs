//! `cargo xtask chart`: is the Helm chart right, and does it render what it did?
//!
//! ```text
//! charts/tests/
//!   values/NAME.yaml     what somebody might ask for
//!   golden/NAME.yaml     what the chart makes of it
//!   refused/NAME.yaml    what must be refused; its first line says with which words
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

/// Whether to write.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Take what the chart renders now as right.
    #[arg(long)]
    update: bool,
}

/// Checks the chart, or writes what it renders.
///
/// # Errors
///
/// As [`check`].
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    let start = Instant::now();
    console::step("Chart");
    let told = if options.update {
        update(shell)?
    } else {
        check(shell)?
    };
    console::done(told, start.elapsed());

    Ok(())
}

/// Tells whether this machine has helm.
pub(crate) fn is_checkable() -> bool {
    Helm::find().is_some()
}

/// Checks the chart; tells what was checked.
///
/// # Errors
///
/// Returns an error if there is no helm, if helm finds fault with the chart, if it renders
/// something else than it did, or takes values that it must refuse.
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
        let answer = helm.template(shell, values)?;
        problems.extend(refused::problem(values, answer)?);
    }
    if !problems.is_empty() {
        bail!("the chart is not right:\n    {}", problems.join("\n    "));
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

/// The chart.
fn chart() -> PathBuf {
    workspace::root().join("charts/liqo")
}

/// What it is tested with: beside it, so that no release carries it.
fn tests() -> PathBuf {
    workspace::root().join("charts/tests")
}

/// The test files of a kind, in a fixed order.
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

/// Where the rendering of these values is.
fn golden(values: &Path) -> PathBuf {
    let name = values.file_name().unwrap_or_default();

    tests().join("golden").join(name)
}

/// A file's name as people know it.
fn name(path: &Path) -> String {
    let short = path.strip_prefix(workspace::root()).unwrap_or(path);

    short.display().to_string()
}

/// Names the first line that differs.
fn difference(file: &str, expected: &str, rendered: &str) -> Option<String> {
    if expected == rendered {
        return None;
    }
    let mut lines = expected.lines();
    let mut number = 0;
    let there = rendered.lines().find(|line| {
        number += 1;
        lines.next() != Some(*line)
    });
    let there = there.unwrap_or("the end");

    Some(format!(
        "{file}, line {number}: the chart now renders {:?}; if that is right, run `cargo xtask chart --update`",
        there.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rendered_as_before_is_right() {
        assert_eq!(difference("a.yaml", "a\nb\n", "a\nb\n"), None);
    }

    #[test]
    fn the_first_other_line_is_named() {
        let told = difference("a.yaml", "a\nb\nc\n", "a\n  x\nc\n").unwrap();

        assert!(told.starts_with("a.yaml, line 2"), "{told}");
        assert!(told.contains("\"x\""), "{told}");
    }

    #[test]
    fn a_shorter_rendering_is_another_one() {
        let told = difference("a.yaml", "a\nb\n", "a\n").unwrap();

        assert!(told.contains("the end"), "{told}");
    }
}
