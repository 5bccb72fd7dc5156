//! `cargo xtask demo`: creates two clusters with equal CIDRs, sends traffic between their pods,
//! and checks each claim of the README.
//!
//! Progress goes to standard error and results to standard output. So with `-o json` standard
//! output is one JSON document.

mod capture;
mod claims;
mod clusters;
mod hops;
mod links;
mod report;
mod scenario;

use crate::console::Steps;
use crate::setup::needs::Set;
use crate::shell::Shell;
use crate::{console, leftovers, setup, test, workspace};
use anyhow::{Context as _, Result};
use claims::{CHECKS, Check, Verdict};
use clap::{Args, ValueEnum};
use links::Links;
use report::{Claim, Report};
use scenario::{MILAN, REPLICAS, ROME, Scenario};
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::Instant;

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// Uses two real Kubernetes clusters, and connects them with `liqoctl`.
    #[arg(long)]
    kubernetes: bool,

    /// The format of the results.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    /// Keeps the clusters at the end, so that you can experiment with them.
    #[arg(long)]
    keep: bool,

    /// Only removes the clusters of a demo that was kept or has crashed.
    #[arg(long, conflicts_with = "keep")]
    clean: bool,

    /// Uses the binaries of the last build instead of building them.
    #[arg(long)]
    no_build: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for terminals.
    Text,
    /// One JSON document.
    Json,
}

/// Runs the demo. The exit code is zero if every claim holds.
///
/// # Errors
///
/// Returns an error if the demo cannot start.
pub(crate) fn run(shell: &mut Shell, options: &Demo) -> Result<ExitCode> {
    if options.clean {
        clusters::clean(shell)?;
        return clean();
    }
    if options.kubernetes {
        return clusters::run(shell, options);
    }
    let mut steps = announce(options);
    steps.next("Install compilers and programs that this machine lacks");
    setup::run_for(shell, &[Set::Demo])?;
    if !options.no_build {
        steps.next("Build gateway and route agent from their sources");
        test::build(shell)?;
    }
    steps.next("Create two clusters of network namespaces, and connect them");
    for id in leftovers::remove_crashed()? {
        console::note(format_args!("removed laboratory {id}, whose owner crashed"));
    }
    let before = leftovers::observe(shell)?;
    let versions = versions(shell)?;
    // From now on, a signal handler removes the laboratory before this process ends.
    tests::lab::clean_on_signal()?;

    let start = Instant::now();
    let mut report = Report {
        versions,
        ..Report::default()
    };
    match Scenario::build() {
        Ok(mut scenario) => {
            steps.next(format_args!("Check {} claims", CHECKS.len()));
            check_claims(&mut scenario, &mut report);
            if options.keep {
                steps.next("Keep the clusters");
                keep(scenario)?;
            } else {
                steps.next("Clean up, and check that nothing is left");
                drop(scenario);
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

/// Prints the report. The exit code is zero if every claim holds.
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

/// Prints the expected duration of the demo, and returns a counter for its steps.
fn announce(options: &Demo) -> Steps {
    let is_built = workspace::binaries().join("gateway").is_file();
    let duration = if is_built || options.no_build {
        "about 20 seconds, and a minute or two more if sources have changed"
    } else {
        "about 6 minutes on 2 cores the first time, nearly all of it to compile; \
         20 seconds afterwards"
    };
    console::note(format_args!("This takes {duration}."));

    Steps::new(if options.no_build { 4 } else { 5 })
}

fn check_claims(scenario: &mut Scenario, report: &mut Report) {
    if let Err(error) = show_clusters(scenario) {
        console::failure(&error);
    }
    for check in CHECKS {
        console::step(format_args!("{}: {}", check.name, check.why));
        let start = Instant::now();
        let verdict = judge(check, scenario)
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
            name: check.name,
            pass: verdict.pass,
            measured: verdict.measured,
        });
    }
}

/// Runs the check of a claim. The claim also fails if the check changed settings of a network link
/// and did not restore them.
fn judge(check: &Check, scenario: &mut Scenario) -> Result<Verdict> {
    let before = Links::observe(scenario)?;
    let verdict = (check.judge)(scenario);
    let changes = before.changes(&Links::observe(scenario)?);
    let verdict = verdict?;
    if changes.is_empty() {
        return Ok(verdict);
    }

    Ok(Verdict {
        pass: false,
        measured: format!("{}; left changed: {}", verdict.measured, changes.join(", ")),
        ..verdict
    })
}

fn show_clusters(scenario: &Scenario) -> Result<()> {
    console::step("Two clusters with equal CIDRs");
    for (own, remote) in [(ROME, MILAN), (MILAN, ROME)] {
        let cluster = scenario.lab.cluster(own);
        console::note(format_args!(
            "{own:<5} pod CIDR {}; {remote}'s is remapped to {}",
            scenario.pods(own)?,
            scenario.pods_seen(own, remote)?,
        ));
        for node in &cluster.nodes {
            console::note(format_args!(
                "      node {} at {}, pod CIDR {}",
                node.name, node.internal_ip, node.pod_cidrs[0],
            ));
        }
    }
    console::note(format_args!(
        "the client in rome has the address {}, the server in milan has {}, remapped to {} in rome",
        scenario.rome.address, scenario.milan.address, scenario.milan_seen,
    ));

    console::step("One packet, seen at each hop");
    hops::show(scenario)?;

    console::step("The status of gateways");
    for (cluster, replica) in [(ROME, 1), (MILAN, REPLICAS)] {
        console::note(format_args!("gateway {replica} of {cluster}:"));
        for line in scenario.gateway_status(cluster, replica)?.lines() {
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

fn keep(mut scenario: Scenario) -> Result<()> {
    scenario.restart_killed()?;
    scenario.lab.keep()?;
    let rome = scenario.rome.netns.name();
    let node = scenario.lab.cluster(ROME).node(1).netns.name();
    let inner = scenario.inner_netns(ROME, 1);
    let program = scenario.lab.binaries().gateway.display();
    let instance = scenario.lab.gateway_instance(ROME, 1);

    console::step("The clusters stay up; try these commands");
    for (purpose, command) in [
        (
            "ping milan from rome",
            format!("ip netns exec {rome} ping {}", scenario.milan_seen),
        ),
        (
            "a node's route to milan",
            format!("ip netns exec {node} ip route get {}", scenario.milan_seen),
        ),
        (
            "all routes of the route agent",
            format!("ip netns exec {node} ip route show table 27761"),
        ),
        (
            "the packets of a tunnel",
            format!("ip netns exec {inner} tcpdump -eni liqo-tap"),
        ),
        (
            "the status of a gateway",
            format!(
                "{program} status --instance {instance} --run-dir {}",
                scenario.run_dir().display()
            ),
        ),
        (
            "the desired state",
            format!("less {}", scenario.lab.fabric_path(ROME).display()),
        ),
        ("remove the clusters", "cargo xtask demo --clean".to_owned()),
    ] {
        console::note(format_args!("{purpose:<28} {command}"));
    }

    Ok(())
}

fn clean() -> Result<ExitCode> {
    let removed = tests::lab::clean()?;
    if removed.is_empty() {
        println!("There is no laboratory to remove.");
    }
    for id in removed {
        println!("Removed the laboratory {id}.");
    }

    Ok(ExitCode::SUCCESS)
}

fn versions(shell: &mut Shell) -> Result<BTreeMap<String, String>> {
    let commit = workspace::revision(shell, &[])?;
    let binaries = workspace::binaries();
    let commands = [
        ("kernel", with("uname", "-r")),
        ("gateway", with(binaries.join("gateway"), "--version")),
        (
            "route-agent",
            with(binaries.join("route-agent"), "--version"),
        ),
    ];

    let mut versions = BTreeMap::new();
    versions.extend(commit.map(|commit| ("commit".to_owned(), commit)));
    for (name, command) in commands {
        let output = shell.output(command)?;
        let text = String::from_utf8(output.stdout).context("a version is not UTF-8")?;
        versions.insert(name.to_owned(), text.trim().to_owned());
    }

    Ok(versions)
}

fn with(program: impl AsRef<std::ffi::OsStr>, argument: &str) -> Command {
    let mut command = Command::new(program);
    command.arg(argument);
    command
}
