//! `cargo xtask demo`: the main job, on real traffic, before your eyes.
//!
//! Narration goes to standard error and results to standard output, so that
//! `-o json` prints one document and nothing else.

mod capture;
mod claims;
mod clusters;
mod hops;
mod report;
mod stage;

use crate::shell::Shell;
use crate::{console, leftovers, setup, test, workspace};
use anyhow::{Context as _, Result};
use claims::{PROMISES, Verdict};
use clap::{Args, ValueEnum};
use report::{Claim, Report};
use stage::{MILAN, REPLICAS, ROME, Stage};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// What to show.
#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Shows it on two real Kubernetes clusters instead, by `liqoctl`.
    #[arg(long)]
    kubernetes: bool,

    /// How to print the results.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    /// Leaves the clusters up, to play with.
    #[arg(long)]
    keep: bool,

    /// Removes the clusters of a kept or crashed demo, and does nothing else.
    #[arg(long, conflicts_with = "keep")]
    clean: bool,

    /// Runs the processes as they were built before.
    #[arg(long)]
    no_build: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// For machines: one JSON document.
    Json,
}

/// Shows that it works, and returns whether every claim held.
///
/// # Errors
///
/// Returns an error if the demo cannot even begin.
pub(crate) fn run(shell: &mut Shell, options: &Demo) -> Result<ExitCode> {
    if options.clean {
        clusters::clean(shell)?;
        return clean();
    }
    if options.kubernetes {
        return clusters::run(shell, options);
    }
    setup::run(shell)?;
    if !options.no_build {
        test::build(shell)?;
    }
    for id in leftovers::remove_crashed()? {
        console::note(format_args!("removed laboratory {id}, whose owner crashed"));
    }
    let before = leftovers::observe(shell)?;
    let versions = versions(shell)?;
    // From here on there is something to remove.
    tests::lab::clean_on_signal()?;

    let start = Instant::now();
    let mut report = Report {
        versions,
        ..Report::default()
    };
    match Stage::build() {
        Ok(mut stage) => {
            play(&mut stage, &mut report);
            if options.keep {
                keep(stage)?;
            } else {
                console::step("clean-up: nothing is left");
                drop(stage);
                let left = leftovers::since(shell, &before)?;
                report.claims.push(clean_up(&left));
            }
        }
        Err(error) => report.claims.push(Claim {
            name: "up",
            pass: false,
            measured: format!("{error:#}"),
        }),
    }
    conclude(report, start, options.output)
}

/// Prints what was found, and returns whether every claim held.
fn conclude(mut report: Report, start: Instant, output: Format) -> Result<ExitCode> {
    report.pass = report.claims.iter().all(|claim| claim.pass);
    report.seconds = start.elapsed().as_secs_f64();

    match output {
        Format::Text => report.print(),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(if report.pass {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn play(stage: &mut Stage, report: &mut Report) {
    if let Err(error) = introduce(stage) {
        console::failure(&error);
    }
    for promise in PROMISES {
        console::step(format_args!("{}: {}", promise.name, promise.why));
        let start = Instant::now();
        let verdict = (promise.judge)(stage)
            .unwrap_or_else(|error| Verdict::new(false, format!("{error:#}")));
        if verdict.pass {
            console::done(&verdict.measured, start.elapsed());
        } else {
            console::failed(&verdict.measured, start.elapsed());
        }
        if let Some(throughput) = verdict.throughput {
            report.throughput = Some(throughput);
        }
        report.claims.push(Claim {
            name: promise.name,
            pass: verdict.pass,
            measured: verdict.measured,
        });
    }
}

fn introduce(stage: &Stage) -> Result<()> {
    console::step("Two clusters that chose the same addresses");
    for (own, remote) in [(ROME, MILAN), (MILAN, ROME)] {
        let cluster = stage.lab.cluster(own);
        console::note(format_args!(
            "{own:<5} pods {}, and sees {remote}'s as {}",
            stage.pods(own)?,
            stage.pods_seen(own, remote)?,
        ));
        for node in &cluster.nodes {
            console::note(format_args!(
                "      node {} at {}, pods {}",
                node.name, node.internal_ip, node.pod_cidrs[0],
            ));
        }
    }
    console::note(format_args!(
        "the client in rome is {}, the server in milan is {} too; rome calls it {}",
        stage.rome.address, stage.milan.address, stage.milan_seen,
    ));

    console::step("One packet, seen at each hop");
    hops::show(stage)?;

    console::step("What a gateway says");
    for (cluster, replica) in [(ROME, 1), (MILAN, REPLICAS)] {
        console::note(format_args!("gateway {replica} of {cluster}:"));
        for line in stage.gateway_status(cluster, replica)?.lines() {
            console::note(format_args!("  {line}"));
        }
    }

    Ok(())
}

fn clean_up(left: &[String]) -> Claim {
    Claim {
        name: "clean-up",
        pass: left.is_empty(),
        measured: if left.is_empty() {
            "no namespace, device, rule, route, nexthop, table, pin or process is left".to_owned()
        } else {
            format!("left: {}", left.join(", "))
        },
    }
}

fn keep(mut stage: Stage) -> Result<()> {
    stage.revive()?;
    stage.lab.keep()?;
    let rome = stage.rome.netns.name();
    let node = stage.lab.cluster(ROME).node(1).netns.name();
    let inner = stage.inner_netns(ROME, 1);
    let program = stage.lab.binaries().gateway.display();
    let instance = stage.lab.gateway_instance(ROME, 1);

    console::step("The clusters stay up; try");
    for (what, command) in [
        (
            "ping milan from rome",
            format!("ip netns exec {rome} ping {}", stage.milan_seen),
        ),
        (
            "a node's way to milan",
            format!("ip netns exec {node} ip route get {}", stage.milan_seen),
        ),
        (
            "all routes of ours",
            format!("ip netns exec {node} ip route show table 27761"),
        ),
        (
            "what goes through a tunnel",
            format!("ip netns exec {inner} tcpdump -eni liqo-tap"),
        ),
        (
            "a gateway's view",
            format!(
                "{program} status --instance {instance} --run-dir {}",
                stage.run_dir().display()
            ),
        ),
        (
            "the desired state",
            format!("less {}", stage.lab.fabric_path(ROME).display()),
        ),
        ("remove it all", "cargo xtask demo --clean".to_owned()),
    ] {
        console::note(format_args!("{what:<28} {command}"));
    }

    Ok(())
}

fn clean() -> Result<ExitCode> {
    let removed = tests::lab::clean()?;
    if removed.is_empty() {
        println!("There was nothing to remove.");
    }
    for id in removed {
        println!("Removed the laboratory {id}.");
    }

    Ok(ExitCode::SUCCESS)
}

fn versions(shell: &mut Shell) -> Result<BTreeMap<String, String>> {
    let mut commit = Command::new("git");
    commit
        .args(["describe", "--always", "--dirty"])
        .current_dir(workspace::root());
    let binaries = workspace::binaries();
    let commands = [
        ("commit", commit),
        ("kernel", with("uname", "-r")),
        ("gateway", with(binaries.join("gateway"), "--version")),
        (
            "route-agent",
            with(binaries.join("route-agent"), "--version"),
        ),
    ];

    commands
        .into_iter()
        .map(|(name, command)| {
            let output = shell.output(command)?;
            let text = String::from_utf8(output.stdout).context("a version is not UTF-8")?;
            Ok((name.to_owned(), text.trim().to_owned()))
        })
        .collect()
}

fn with(program: impl AsRef<std::ffi::OsStr>, argument: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(argument);
    command
}
