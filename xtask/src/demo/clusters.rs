//! `cargo xtask demo --kubernetes`: creates two Kubernetes clusters, and connects and peers them with
//! `liqoctl`.

mod steps;
mod tools;

use super::Demo;
use super::report::{Claim, Report};
use crate::setup::needs::Set;
use crate::shell::{Interrupted, Shell};
use crate::{cluster, console, image, setup, workspace};
use anyhow::Result;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;
use tools::Tools;

/// The name of the local cluster of `liqoctl network connect`.
const ROME: &str = "demo-rome";

/// The name of the remote cluster of `liqoctl network connect`.
const MILAN: &str = "demo-milan";

/// Runs the demo. The exit code is zero if every claim holds.
///
/// # Errors
///
/// Returns an error if the demo cannot start or was interrupted.
pub(super) fn run(shell: &mut Shell, options: &Demo) -> Result<ExitCode> {
    setup::run_for(shell, &[Set::Kubernetes])?;
    let tools = Tools::new(shell, options.no_build)?;
    let start = Instant::now();
    let mut report = Report {
        versions: tools.versions(shell)?,
        ..Report::default()
    };

    let end = if options.keep { &[] } else { steps::END };
    let steps = steps::STEPS.iter().chain(end);
    let outcome = run_steps(shell, &tools, steps, &mut report);
    let interrupted = outcome
        .as_ref()
        .is_err_and(|error| error.is::<Interrupted>());
    if let Err(error) = outcome
        && !interrupted
    {
        report.claims.push(Claim {
            name: "complete",
            pass: false,
            measured: format!("{error:#}"),
        });
    }
    if options.keep && !interrupted {
        tools.suggest_commands(shell)?;
    } else {
        let cleaned = steps::clean_up(shell, &tools, !report.claims.is_empty());
        report.claims.push(cleaned?);
    }
    if interrupted {
        return Err(Interrupted.into());
    }

    super::conclude(report, start, options.output)
}

/// Removes the clusters of a demo that was kept or has crashed.
///
/// # Errors
///
/// Returns an error if a cluster cannot be removed.
pub(super) fn clean(shell: &mut Shell) -> Result<()> {
    let program = workspace::target().join("debug/cluster");
    if !program.exists() {
        return Ok(());
    }
    let mut list = Command::new(&program);
    list.arg("list");
    let listed = shell.output(list)?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut words = listed.split_whitespace().collect::<Vec<_>>();
    words.retain(|word| [ROME, MILAN].contains(word));
    words.sort_unstable();
    words.dedup();
    if words.is_empty() {
        return Ok(());
    }
    let mut down = Command::new(&program);
    down.arg("down").args(words);

    shell.run(down)
}

fn run_steps<'a>(
    shell: &mut Shell,
    tools: &Tools,
    steps: impl Iterator<Item = &'a steps::Step>,
    report: &mut Report,
) -> Result<()> {
    for step in steps {
        console::step(format_args!("{}: {}", step.name, step.why));
        let start = Instant::now();
        let verdict = (step.run)(shell, tools)?;
        if verdict.pass {
            console::done(&verdict.measured, start.elapsed());
        } else {
            console::failed(&verdict.measured, start.elapsed());
        }
        report.claims.push(Claim {
            name: step.name,
            pass: verdict.pass,
            measured: verdict.measured,
        });
    }

    Ok(())
}

/// Builds all programs of the demo, and returns the path of the Kubernetes laboratory's program.
fn build(shell: &mut Shell) -> Result<PathBuf> {
    let program = cluster::program(shell)?;
    cluster::artifacts(shell, &program, &[])?;
    image::build_all(shell)?;
    console::step("Building liqoctl");
    let start = Instant::now();
    workspace::program(shell, "liqoctl")?;
    console::done("built", start.elapsed());

    Ok(program)
}
