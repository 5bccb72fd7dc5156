//! Records machine, versions and options of a run.

use super::ends;
use super::programs::Programs;
use super::results::Setting;
use crate::shell::Shell;
use crate::workspace;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Machine, checkout and command of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Checkout {
    /// The start of the run, in UTC.
    pub(super) date: String,
    /// The commit of the checkout, abbreviated to ten hexadecimal digits.
    pub(super) commit: String,
    /// Whether the checkout had uncommitted changes.
    pub(super) modified: bool,
    pub(super) command: String,
    /// Kernel, processor, number of cores, memory and congestion control.
    pub(super) machine: BTreeMap<String, String>,
}

/// Reads the machine's properties, the commit and the versions of the tools.
///
/// # Errors
///
/// Returns an error that names the command or file that failed.
pub(super) fn observe(
    shell: &mut Shell,
    programs: &Programs,
    rounds: u32,
    seconds: u32,
) -> Result<Setting> {
    let mut versions: BTreeMap<String, String> = programs
        .iter()
        .map(|(tunnel, program)| (tunnel.name(), program.version.clone()))
        .collect();
    versions.insert("iperf3".to_owned(), ends::version("iperf3")?);

    Ok(Setting {
        checkout: of_checkout(shell)?,
        versions,
        rounds,
        seconds,
    })
}

/// Reads the machine's properties and the commit.
///
/// # Errors
///
/// Returns an error that names the command or file that failed.
pub(super) fn of_checkout(shell: &mut Shell) -> Result<Checkout> {
    let git = |shell: &mut Shell, arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(workspace::root());
        output(shell, command)
    };
    let mut date = Command::new("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]);

    Ok(Checkout {
        date: output(shell, date)?,
        commit: git(shell, &["rev-parse", "--short=10", "HEAD"])?,
        modified: !git(shell, &["status", "--porcelain"])?.is_empty(),
        command: command(std::env::args().skip(1)),
        machine: machine()?,
    })
}

/// Returns the command line with which a user can repeat the run.
fn command(arguments: impl Iterator<Item = String>) -> String {
    ["cargo".to_owned(), "xtask".to_owned()]
        .into_iter()
        .chain(arguments)
        .collect::<Vec<_>>()
        .join(" ")
}

fn output(shell: &mut Shell, command: Command) -> Result<String> {
    let shown = crate::shell::show(&command);
    let output = shell.output(command)?;
    if !output.status.success() {
        bail!("`{shown}` failed: {}", output.status);
    }

    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn machine() -> Result<BTreeMap<String, String>> {
    let cpus = read("/proc/cpuinfo")?;
    let models: Vec<&str> = values(&cpus, "model name").collect();

    let machine = [
        ("kernel", read("/proc/sys/kernel/osrelease")?),
        (
            "processor",
            models.first().copied().unwrap_or_default().to_owned(),
        ),
        ("cores", models.len().to_string()),
        (
            "memory",
            values(&read("/proc/meminfo")?, "MemTotal")
                .collect::<Vec<_>>()
                .join(" "),
        ),
        (
            "congestion_control",
            read("/proc/sys/net/ipv4/tcp_congestion_control")?,
        ),
    ];
    Ok(machine.map(|(name, value)| (name.to_owned(), value)).into())
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;

    Ok(text.trim().to_owned())
}

/// Returns the values of all lines `key : value`, as in `/proc/cpuinfo`.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_repeated() {
        let arguments = ["bench", "--rounds", "3"].map(str::to_owned);

        assert_eq!(
            command(arguments.into_iter()),
            "cargo xtask bench --rounds 3"
        );
    }

    #[test]
    fn each_core_has_its_line() {
        let text =
            "processor\t: 0\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n";

        let models: Vec<_> = values(text, "model name").collect();

        assert_eq!(models, ["AMD EPYC", "AMD EPYC"]);
    }
}
