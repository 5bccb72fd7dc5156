//! Runs programs of this machine.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsStr;
use std::io::{ErrorKind, Write as _};
use std::process::{Command, Output, Stdio};

/// Runs a program, and returns its standard output.
///
/// # Errors
///
/// Returns an error if the program is missing, or if it fails. The error of a failed program
/// contains its standard error.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    checked(Command::new(program).args(args), "")
}

/// Runs `ip` commands as a batch. The commands are written without the word `ip`.
///
/// # Errors
///
/// Returns the error of the first command that fails. Later commands are not run.
pub(crate) fn ip<S: AsRef<str>>(netns: Option<&str>, commands: &[S]) -> Result<()> {
    let batch: String = commands
        .iter()
        .map(|command| format!("{}\n", command.as_ref()))
        .collect();
    let mut command = Command::new("ip");
    if let Some(netns) = netns {
        command.args(["-n", netns]);
    }
    checked(command.args(["-batch", "-"]), &batch).map(drop)
}

/// Runs a program with the standard input `input`, and returns the standard output.
///
/// # Errors
///
/// Returns the same errors as [`run`].
pub(crate) fn checked(command: &mut Command, input: &str) -> Result<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = output(command, input)?;
    if !output.status.success() {
        bail!(
            "`{shown}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program with the standard input `input`, and returns the output and the exit status.
///
/// # Errors
///
/// Returns an error if the program cannot be started.
pub(crate) fn output(command: &mut Command, input: &str) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("failed to start {name}"))?;
    let mut stdin = child.stdin.take().context("standard input is piped")?;
    let input = input.to_owned();
    let feed = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .with_context(|| format!("failed to wait for {name}"))?;
    // A program may exit before it has read all input.
    if let Ok(Err(error)) = feed.join()
        && error.kind() != ErrorKind::BrokenPipe
    {
        return Err(error).with_context(|| format!("failed to write to {name}"));
    }

    Ok(output)
}
