//! Tests promise times, and a machine that stands still keeps none: what failed while it
//! did is asked again.

use crate::shell::{Interrupted, Shell};
use crate::{console, workspace};
use ::tests::stall::Witness;
use anyhow::{Context as _, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// How often tests may be repeated that failed while the machine stood still.
const REPEATS_MAX: u32 = 2;

/// Which tests of a program to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Choice<'a> {
    /// All.
    All,
    /// Those that have this in their names.
    Filter(&'a str),
    /// These.
    Exactly(&'a [String]),
}

/// Runs those tests of the program called `program` that have `filter` in their names, by
/// an `attempt` that is told where to log, a line "failed NAME" for each that fails.
///
/// A failure counts only on a machine that was running: where it stood still, those that
/// failed are repeated, and a person is told.
///
/// # Errors
///
/// Returns the error of `attempt` that counts.
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
            "the machine stood still {} times meanwhile, for up to {:.1?}: repeating what failed: {}",
            stalls.count,
            stalls.longest,
            failed.join(", ")
        ));
        repeats_left -= 1;
    }
}

/// The names of the tests that the test program's log says have failed.
fn read(log: &Path) -> Result<Vec<String>> {
    let lines = match fs::read_to_string(log) {
        Ok(lines) => lines,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(), // Did not build.
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
    fn the_log_names_what_failed() {
        let log = "ok a::b\nfailed sizes::large\nignored c\nfailed d\n";

        assert_eq!(names(log), ["sizes::large", "d"]);
    }
}
