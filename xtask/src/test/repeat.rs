//! Repeats tests that failed while the machine stalled. Stalls of a virtual machine cause tests to
//! exceed their time limits.

use crate::shell::{Interrupted, Shell};
use crate::{console, workspace};
use ::tests::stall::Witness;
use anyhow::{Context as _, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Maximum number of attempts after the first one.
const REPEATS_MAX: u32 = 2;

/// The tests of a test binary to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    All,
    /// The tests whose names contain this text.
    Filter(&'a str),
    /// The tests with exactly these names.
    Exactly(&'a [String]),
}

/// Runs the tests of `program` whose names contain `filter`. If the machine stalled during an
/// attempt, prints a message and repeats the failed tests.
///
/// `attempt` runs the tests once. For each failed test, it writes a line `failed NAME` to the file
/// that it receives.
///
/// # Errors
///
/// Returns the error of the last `attempt`.
pub(super) fn run(
    shell: &mut Shell,
    program: &str,
    filter: Option<&str>,
    attempt: impl Fn(&mut Shell, &Path, Choice<'_>) -> Result<()>,
) -> Result<()> {
    let log = workspace::target().join(format!("{program}.log"));
    let mut failed = Vec::new();
    let mut repeats_left = REPEATS_MAX;

    loop {
        remove(&log)?;
        let choice = match filter {
            _ if !failed.is_empty() => Choice::Exactly(&failed),
            Some(part) => Choice::Filter(part),
            None => Choice::All,
        };
        let witness = Witness::start();
        let outcome = attempt(shell, &log, choice);
        let stalls = witness.finish();
        let Err(error) = outcome else { return Ok(()) };

        failed = read(&log)?;
        let repeat = !failed.is_empty() && stalls.count > 0 && repeats_left > 0;
        if !repeat || error.is::<Interrupted>() {
            return Err(error);
        }
        console::failure(&error);
        console::note(format_args!(
            "the machine stalled {} times meanwhile, for up to {:.1?}: repeating the failed tests: {}",
            stalls.count,
            stalls.longest,
            failed.join(", ")
        ));
        repeats_left -= 1;
    }
}

/// Returns the names of the failed tests in a log.
fn read(log: &Path) -> Result<Vec<String>> {
    let lines = match fs::read_to_string(log) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(), // The tests did not build.
        Err(error) => {
            return Err(error).with_context(|| format!("failed to read {}", log.display()));
        }
    };

    Ok(names(&lines))
}

fn names(log: &str) -> Vec<String> {
    log.lines()
        .filter_map(|line| line.strip_prefix("failed "))
        .map(str::to_owned)
        .collect()
}

fn remove(log: &Path) -> Result<()> {
    match fs::remove_file(log) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("failed to remove {}", log.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_read_from_the_log() {
        let log = "ok a::b\nfailed sizes::large\nignored c\nfailed d\n";

        assert_eq!(names(log), ["sizes::large", "d"]);
    }
}
