//! The laboratory's tests: real traffic between clusters in network namespaces.

use super::stall::Witness;
use super::{BINARIES, LABORATORIES};
use crate::shell::Shell;
use crate::{console, workspace};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

/// How often tests may be repeated that failed while the machine stood still.
const REPEATS_MAX: u32 = 2;

/// Runs those with `filter` in their names.
///
/// They promise times, so a failure counts only on a machine that was running: where
/// it stood still, those that failed are repeated, and a person is told.
///
/// # Errors
///
/// Returns an error if a test fails.
pub(super) fn run(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    let log = workspace::target().join("laboratory.log");
    let mut names: Vec<String> = filter.map(str::to_owned).into_iter().collect();
    let mut exact = false;

    for repeats_left in (0..=REPEATS_MAX).rev() {
        remove(&log)?;
        let witness = Witness::start();
        let status = shell.status(command(&log, &names, exact))?;
        let stalls = witness.finish();
        if status.success() {
            return Ok(());
        }

        let failed = failed(&log)?;
        if failed.is_empty() || stalls.count == 0 || repeats_left == 0 {
            bail!("the laboratory's tests failed: {status}");
        }
        console::note(format_args!(
            "the machine stood still {} times meanwhile, for up to {:.1?}: repeating what failed: {}",
            stalls.count,
            stalls.longest,
            failed.join(", ")
        ));
        names = failed;
        exact = true;
    }

    Ok(())
}

fn command(log: &Path, names: &[String], exact: bool) -> Command {
    let mut command = workspace::cargo(&["test", "--locked", "--package", "tests"]);
    command
        .env(BINARIES, workspace::binaries())
        .args([
            "--test",
            "it",
            "--",
            "--test-threads",
            LABORATORIES,
            "--logfile",
        ])
        .arg(log)
        .args(exact.then_some("--exact"))
        .args(names);
    command
}

/// The names of the tests that the test program's log says have failed.
fn failed(log: &Path) -> Result<Vec<String>> {
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
