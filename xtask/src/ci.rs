//! `cargo xtask ci`: every check that a change must pass.
//!
//! Each part runs in the [`view`] of a package set. A view hides the programs that the set's
//! packages do not install. So a part fails on any machine if it runs a program that the set does
//! not declare.

use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{chart, console, crds, licences, setup, tidy, view, workspace};
use anyhow::Result;
use clap::Args;
use std::process::Command;
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// Runs the checks without views, so that they can use all programs of this machine. This is
    /// for a developer without root, overlayfs or dpkg. A run with this option does not prove that
    /// a change passes.
    #[arg(long)]
    unrestricted: bool,
}

/// A package set, and the command of `cargo xtask` that runs in the view of this set.
type Part = (Set, &'static [&'static str]);

const CHECKS: Part = (Set::Build, &["checks"]);
const CHART: Part = (Set::Chart, &["chart"]);

/// The parts that run tests, from the fastest to the slowest.
const TESTS: &[Part] = &[
    (Set::Unit, &["test", "--only", "unit"]),
    (Set::Laboratory, &["test", "--only", "laboratory"]),
    (Set::Fuzz, &["fuzz", "--seconds=10"]),
    (Set::Demo, &["demo", "--no-build"]),
    (Set::Bench, BENCH),
    (Set::Kubernetes, &["test", "--kubernetes", "--quick"]),
];

/// Takes each measurement once for one second. This checks that the bench runs, but does not check
/// the speed.
const BENCH: &[&str] = &[
    "bench",
    "--no-build",
    "--rounds=1",
    "--seconds=1",
    "--underlay=uso",
    "--tunnel=fabric,gateway,wireguard-go-debian",
];

/// Runs all checks, from the fastest to the slowest.
///
/// # Errors
///
/// Returns an error that names the first check that failed.
pub(crate) fn run(shell: &mut Shell, options: &Options) -> Result<()> {
    let start = Instant::now();
    if options.unrestricted {
        console::note("unrestricted: undeclared programs do not fail this run");
        setup::run_for(shell, Set::ALL)?;
    } else {
        setup::run_for_views(shell)?;
    }

    if let Some(deny) = deny(shell)? {
        commands(shell, "Advisories, sources and duplicates", [deny])?;
    }
    // The chart's check needs helm, which the tests on clusters build. So on a machine without
    // helm, the chart is checked after these tests.
    let (early, late) = if chart::is_checkable() {
        (Some(CHART), None)
    } else {
        (None, Some(CHART))
    };
    let parts = [CHECKS].into_iter().chain(early);
    for (set, command) in parts.chain(TESTS.iter().copied()).chain(late) {
        if options.unrestricted {
            shell.run_with_clean_up(view::this_program(command))?;
        } else {
            view::xtask(shell, set, command)?;
        }
    }

    console::step("Every check passed");
    console::done("cargo xtask ci", start.elapsed());
    Ok(())
}

/// Runs the static checks: tidiness, licences, format, lints and documentation.
///
/// # Errors
///
/// Returns an error that names the first check that failed.
pub(crate) fn checks(shell: &mut Shell) -> Result<()> {
    step("Tidy: sizes, names, purity, documented settings", || {
        tidy::check()
    })?;
    step("Licences, and lock files that are current", || {
        licences::check(shell).map(|count| format!("{count} packages"))
    })?;
    commands(shell, "Format", formats())?;
    step("Custom resource definitions that are current", || {
        crds::check(shell)
    })?;
    commands(shell, "Lints", lints())?;
    commands(shell, "Documentation", [documentation()])
}

fn formats() -> [Command; 3] {
    // The eBPF programs and the fuzz targets are separate workspaces, which `cargo fmt` does not
    // format.
    let [programs, fuzzing] = ["ebpf/program/Cargo.toml", "fuzz/Cargo.toml"].map(|manifest| {
        let mut command = workspace::cargo(&["fmt", "--check", "--manifest-path"]);
        command.arg(manifest);
        command
    });

    [
        workspace::cargo(&["fmt", "--all", "--check"]),
        programs,
        fuzzing,
    ]
}

fn lints() -> [Command; 3] {
    let lint = || workspace::cargo(&["clippy", "--locked", "--workspace"]);
    let mut all = lint();
    all.arg("--all-targets");
    // `--all-targets` leaves out tests in laboratories, which have `test = false` in their manifests.
    let mut laboratories = lint();
    laboratories.args(["--test", "*"]);
    let mut mutants = lint();
    mutants.args(["--features", "gateway/mutants,route-agent/mutants"]);

    [all, laboratories, mutants].map(|mut command| {
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

/// Returns the cargo-deny command; `None` if cargo-deny is not installed.
///
/// cargo-deny is optional, because it takes minutes to build. In addition to the licences, it
/// checks security advisories, package sources and duplicate packages. The command does not run in
/// a view, because a view hides cargo-deny.
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
