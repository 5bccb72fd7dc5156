//! `cargo xtask ci`: all that must hold before a change is taken.

use crate::shell::Shell;
use crate::test::{self, Test};
use crate::{chart, console, crds, licences, setup, tidy, workspace};
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

const CHART: &str = "Chart: lint, what it renders and refuses";

/// Runs all checks, the quick ones first.
///
/// # Errors
///
/// Returns an error that names the first check that failed.
pub(crate) fn run(shell: &mut Shell) -> Result<()> {
    let start = Instant::now();
    setup::run(shell)?;

    step("Tidy: sizes, names, purity, documented settings", || {
        tidy::check()
    })?;
    step("Licences, and lock files that are current", || {
        licences::check(shell).map(|count| format!("{count} packages"))
    })?;
    if let Some(deny) = deny(shell)? {
        commands(shell, "Advisories, sources and duplicates", [deny])?;
    }
    commands(shell, "Format", formats())?;
    // Else after helm was built, with all that clusters are made of.
    let had_helm = chart::is_checkable();
    if had_helm {
        step(CHART, || chart::check(shell))?;
    }
    step("Custom resource definitions that are current", || {
        crds::check(shell)
    })?;
    commands(shell, "Lints", lints())?;
    commands(shell, "Documentation", [documentation()])?;
    test::run(shell, &Test::ALL)?;
    test::run(shell, &Test::QUICK)?;
    if !had_helm {
        step(CHART, || chart::check(shell))?;
    }

    console::step("Everything holds");
    console::done("cargo xtask ci", start.elapsed());
    Ok(())
}

fn formats() -> [Command; 2] {
    // The kernel programs are no member of the workspace.
    let mut programs = workspace::cargo(&["fmt", "--check", "--manifest-path"]);
    programs.arg("ebpf/program/Cargo.toml");

    [workspace::cargo(&["fmt", "--all", "--check"]), programs]
}

fn lints() -> [Command; 2] {
    let shipped = workspace::cargo(&["clippy", "--locked", "--workspace", "--all-targets"]);
    let mut mutants = workspace::cargo(&["clippy", "--locked", "--package", "gateway"]);
    mutants
        .args(["--package", "route-agent"])
        .args(["--features", "gateway/mutants,route-agent/mutants"]);

    [shipped, mutants].map(|mut command| {
        command.args(["--", "--deny", "warnings"]);
        command
    })
}

fn documentation() -> Command {
    let arguments = ["doc", "--locked", "--workspace", "--no-deps"];
    let mut command = workspace::cargo(&arguments);
    command
        .arg("--document-private-items")
        .env("RUSTDOCFLAGS", "--deny warnings");
    command
}

/// cargo-deny also knows of advisories, but takes minutes to build: it runs where
/// a person installed it.
fn deny(shell: &mut Shell) -> Result<Option<Command>> {
    let mut query = workspace::cargo(&["--list"]);
    query.env("CARGO_TERM_COLOR", "never");
    let output = shell.output(query)?;
    let installed = String::from_utf8_lossy(&output.stdout)
        .lines()
        .any(|line| line.split_whitespace().next() == Some("deny"));

    if !installed {
        console::step("Advisories: not checked, cargo-deny is not installed");
        return Ok(None);
    }
    Ok(Some(workspace::cargo(&["deny", "--locked", "check"])))
}

fn commands<const N: usize>(shell: &mut Shell, name: &str, commands: [Command; N]) -> Result<()> {
    step(name, || {
        for command in commands {
            shell.run(command)?;
        }
        Ok(String::new())
    })
}

fn step(name: &str, check: impl FnOnce() -> Result<String>) -> Result<()> {
    let start = Instant::now();
    console::step(name);
    match check() {
        Ok(detail) if detail.is_empty() => console::done(name, start.elapsed()),
        Ok(detail) => console::done(format_args!("{name}: {detail}"), start.elapsed()),
        Err(error) => {
            console::failed(name, start.elapsed());
            return Err(error);
        }
    }

    Ok(())
}
