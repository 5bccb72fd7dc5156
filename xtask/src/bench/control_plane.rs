//! Benchmarks on a control plane without nodes: builds the measured programs, runs the measuring program, and writes
//! the result to `bench/results`.

use super::Output;
use super::limits::Limited;
use super::setting::{self, Checkout};
use crate::image::build::Selection;
use crate::image::{self, Processor};
use crate::setup;
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{cluster, console, workspace};
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A benchmark whose program starts control planes without nodes, and prints its samples as JSON.
pub(super) struct Benchmark<'a> {
    /// The name of the measuring program, a binary of the package `kubernetes-lab`.
    pub(super) program: &'static str,
    /// The line of progress at the start of the measurement.
    pub(super) title: &'static str,
    /// The measured programs, which are binaries of packages with the same names. Each is an argument of the
    /// measuring program, with the name of the option.
    pub(super) measured: &'a [(&'static str, &'static str)],
    /// Further arguments of the measuring program.
    pub(super) arguments: Vec<String>,
}

/// The result of a benchmark.
pub(super) trait Outcome: Serialize {
    /// Returns the name of the result's files without suffix.
    fn name(&self) -> String;

    /// Returns tables for terminals.
    fn table(&self) -> String;

    /// Returns a document for `bench/results`.
    fn markdown(&self) -> String;

    /// Returns the measured numbers with limits.
    fn targets(&self) -> &[Limited];
}

impl Benchmark<'_> {
    /// Takes the samples.
    ///
    /// # Errors
    ///
    /// Returns an error that names the step that failed.
    pub(super) fn run<S: DeserializeOwned>(&self, shell: &mut Shell) -> Result<(Checkout, S)> {
        setup::run_for(shell, &[Set::Kubernetes])?;
        // The commit is read before the build, because sources may change during the build.
        let setting = setting::of_checkout(shell)?;
        let binaries = self.build_measured(shell)?;
        let measuring = workspace::program(shell, self.program)?;
        let program = cluster::program(shell)?;
        let artifacts = cluster::artifacts(shell, &program, &["--quick"])?;

        console::step(self.title);
        let mut command = Command::new(measuring);
        command.args(&self.arguments);
        for (option, program) in self.measured {
            command.arg(option).arg(binaries.join(program));
        }
        command
            .arg("--chart")
            .arg(workspace::root().join("charts/liqo"))
            .arg("--artifacts")
            .arg(artifacts);
        let output = shell.capture(command)?;
        if !output.status.success() {
            bail!("the measurement failed: see above");
        }
        let samples =
            serde_json::from_slice(&output.stdout).context("the samples are malformed")?;

        Ok((setting, samples))
    }

    /// Builds the measured programs with the flags of a release, and returns their folder.
    fn build_measured(&self, shell: &mut Shell) -> Result<PathBuf> {
        let programs: Vec<_> = self.measured.iter().map(|(_, program)| *program).collect();
        let selection = Selection {
            packages: &image::RELEASED,
            programs: &programs,
            ..Selection::default()
        };

        image::build::binaries(shell, Processor::machine()?, selection)
    }
}

/// Prints the result of the command `name`, and writes it to `bench/results`. `start` is the start of the command.
///
/// # Errors
///
/// Returns an error if a file cannot be written, or if a target is missed and `check` is set.
pub(super) fn finish(
    outcome: &impl Outcome,
    name: &str,
    format: Output,
    check: bool,
    start: Instant,
) -> Result<()> {
    let document = outcome.markdown();
    let mut json = serde_json::to_string_pretty(outcome)?;
    match format {
        Output::Table => anstream::println!("{}", outcome.table()),
        Output::Json => println!("{json}"),
        Output::Markdown => println!("{document}"),
    }
    json.push('\n');
    let folder = workspace::root().join("bench/results");
    for (suffix, text) in [("json", json.as_str()), ("md", document.as_str())] {
        let path = folder.join(format!("{}.{suffix}", outcome.name()));
        write(&path, text)?;
        console::note(format_args!("written to {}", path.display()));
    }
    console::done(name, start.elapsed());
    let targets = outcome.targets();
    let missed = targets.iter().filter(|it| !it.pass).count();
    if check && missed > 0 {
        bail!("{missed} of {} targets missed", targets.len());
    }

    Ok(())
}

/// Returns title, commit and machine of a document for `bench/results`. `method` is the document about the method,
/// relative to `bench`.
pub(super) fn heading(title: &str, setting: &Checkout, method: &str) -> String {
    let modified = match setting.modified {
        true => ", with uncommitted changes",
        false => "",
    };
    let machine: Vec<_> = (setting.machine.iter())
        .map(|(name, value)| format!("- {}: {value}", name.replace('_', " ")))
        .collect();

    format!(
        "# {title}, {}\n\nCommit `{}`{modified}. `{}`. [{method}](../{method}) describes the method.\n\n{}\n",
        setting.date,
        setting.commit,
        setting.command,
        machine.join("\n"),
    )
}

/// Returns the name of the files of a result, without suffix.
pub(super) fn file_name(setting: &Checkout, benchmark: &str) -> String {
    let date = setting.date.get(..10).unwrap_or("undated");
    format!("{date}-{}-{benchmark}", setting.commit)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}
