//! Runs the integration tests in network namespaces, which send traffic between clusters.

use super::repeat::{self, Choice};
use super::{BINARIES, LABORATORIES};
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Result, bail};

/// Runs the tests whose names contain `filter`.
///
/// # Errors
///
/// Returns an error if a test fails.
pub(super) fn run(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    repeat::run(shell, "laboratory", filter, |shell, log, choice| {
        let mut tests = workspace::cargo_for("test");
        tests.env(BINARIES, workspace::binaries()).args([
            "--test",
            "laboratory",
            "--",
            "--test-threads",
            LABORATORIES,
            "--logfile",
        ]);
        tests.arg(log);
        match choice {
            Choice::All => &mut tests,
            Choice::Filter(part) => tests.arg(part),
            Choice::Exactly(names) => tests.arg("--exact").args(names),
        };

        let status = shell.status(tests)?;
        if !status.success() {
            bail!("the laboratory's tests failed: {status}");
        }
        Ok(())
    })
}
