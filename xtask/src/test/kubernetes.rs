//! `cargo xtask test --kubernetes`: what real Kubernetes clusters can do.

use crate::shell::Shell;
use crate::{cluster, console, workspace};
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Clusters of tests are called so, and those of people are not.
const MARK: &str = "it-";

/// Where the laboratory keeps its clusters.
const CLUSTERS: &str = "/var/lib/liqo-lab/clusters";

/// Tells the tests where the programs and images of clusters are.
const ARTIFACTS: &str = "LIQO_LAB_ARTIFACTS";

/// Tells the tests where the programs of their pods are.
const GUESTS: &str = "LIQO_LAB_GUESTS";

/// Runs the tests; they make and remove their clusters.
///
/// # Errors
///
/// Returns an error if a test fails, or if something of a cluster is left.
pub(super) fn run(shell: &mut Shell, filter: Option<&str>) -> Result<()> {
    let program = cluster::program(shell)?;
    let artifacts = cluster::artifacts(shell, &program)?;
    let guests = cluster::guest_programs(shell, "guest/bpf")?;

    let start = Instant::now();
    console::step("Kubernetes: two clusters with the same networks, and what goes wrong");
    let mut tests = workspace::cargo(&["test", "--locked", "--package", "kubernetes-lab"]);
    tests
        .args(["--test", "kubernetes"])
        .env(ARTIFACTS, artifacts)
        .env(GUESTS, guests)
        .args(["--"])
        .args(filter);
    let outcome = shell.run(tests);
    // Also after a failure or an interrupt: they could not clean up then.
    for name in clusters() {
        let mut down = Command::new(&program);
        down.args(["down", &name]);
        shell.run(down)?;
    }
    outcome?;
    let left = left();
    if !left.is_empty() {
        bail!("the tests left on this machine: {}", left.join(", "));
    }
    console::done("Kubernetes", start.elapsed());

    Ok(())
}

/// Clusters of tests that are up.
fn clusters() -> Vec<String> {
    names_in(CLUSTERS)
        .into_iter()
        .filter(|name| name.starts_with(MARK))
        .collect()
}

/// What is left of clusters of tests, and of the laboratory if there is no other.
fn left() -> Vec<String> {
    let mut left = Vec::new();
    let namespaces = names_in("/run/netns");
    let folders = names_in("/sys/fs/cgroup")
        .into_iter()
        .map(|tree| format!("/sys/fs/cgroup/{tree}/liqo-lab"))
        .chain(["/sys/fs/cgroup/liqo-lab".to_owned()]);
    let groups: Vec<_> = folders
        .flat_map(|folder| {
            let names = names_in(&folder);
            names
                .into_iter()
                .map(move |name| format!("{folder}/{name}"))
        })
        .collect();

    left.extend(clusters());
    left.extend(
        namespaces
            .iter()
            .filter(|name| name.starts_with(&format!("liqo-lab-{MARK}")))
            .cloned(),
    );
    left.extend(
        groups
            .into_iter()
            .filter(|group| group.contains(&format!("/{MARK}"))),
    );
    if names_in(CLUSTERS).is_empty() {
        let rest = [
            "/sys/class/net/liqo-lab0",
            "/run/netns/liqo-lab-underlay",
            "/var/lib/liqo-lab",
        ];
        left.extend(
            rest.iter()
                .filter(|path| Path::new(path).exists())
                .map(|&it| it.to_owned()),
        );
    }

    left
}

fn names_in(folder: impl AsRef<Path>) -> Vec<String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}
