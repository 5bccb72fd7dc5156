//! `cargo xtask test --kubernetes`: runs the tests on Kubernetes clusters.

use super::Test;
use super::repeat::{self, Choice};
use crate::shell::Shell;
use crate::{cluster, console, image, liqoctl, workspace};
use anyhow::{Context as _, Result, bail};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs};

/// The prefix of the names of clusters that tests create.
const MARK: &str = "it-";

/// The file that a run locks while it uses the clusters of tests. Their names are the same in all runs,
/// so a second run would remove the clusters of the first one.
const LOCK: &str = "/run/liqo-lab-tests.lock";

/// The folder that contains an entry for each existing cluster.
const CLUSTERS: &str = "/var/lib/liqo-lab/clusters";

/// The environment variable that names the folder of the nodes' programs and images.
const ARTIFACTS: &str = "LIQO_LAB_ARTIFACTS";

/// The environment variable that prevents the removal of the clusters after the tests.
const KEEP: &str = "LIQO_LAB_KEEP";

/// The environment variable that names the folder of the programs for test pods.
const GUESTS: &str = "LIQO_LAB_GUESTS";

/// The environment variable that names the folder of the Helm chart to test.
const CHART: &str = "LIQO_LAB_CHART";

/// The environment variable that names the folder of the image archives to test.
const IMAGES: &str = "LIQO_LAB_IMAGES";

/// The environment variable that names the program of the controller manager to test.
const MANAGER: &str = "LIQO_LAB_MANAGER";

/// The environment variable that names the `liqoctl` to test.
const LIQOCTL: &str = "LIQO_LAB_LIQOCTL";

/// The environment variable that names the program of the proxy to test.
const EDGE: &str = "LIQO_LAB_EDGE";

/// The environment variable that names the program of the virtual kubelet to test.
const VIRTUAL_KUBELET: &str = "LIQO_LAB_VIRTUAL_KUBELET";

/// The environment variable that restricts a run to the tests that every change must pass.
const ESSENTIAL: &str = "LIQO_LAB_ESSENTIAL";

/// The environment variable that names the file to which the tests write a line `failed NAME` for
/// each failed test.
const FAILURES: &str = "LIQO_LAB_FAILURES";

/// The environment variable that contains the names of the tests to repeat, separated by commas.
const ONLY: &str = "LIQO_LAB_ONLY";

/// The environment variable that sets the number of repetitions of tests that measure
/// interruptions.
const REPEAT: &str = "LIQO_LAB_REPEAT";

/// The parts of a release that programs of the laboratory install into clusters.
#[derive(Debug)]
pub(crate) struct Release {
    /// The folder of the nodes' programs and images.
    pub(crate) artifacts: PathBuf,
    /// The folder of Liqo's image archives.
    pub(crate) images: PathBuf,
    pub(crate) liqoctl: PathBuf,
}

impl Release {
    /// Sets the environment variables with the paths of the parts and of the chart.
    pub(crate) fn describe_to(&self, command: &mut Command) {
        command
            .env(ARTIFACTS, &self.artifacts)
            .env(IMAGES, &self.images)
            .env(LIQOCTL, &self.liqoctl)
            .env(CHART, chart());
    }
}

/// Runs the tests on Kubernetes clusters. The tests create and remove their clusters.
///
/// # Errors
///
/// Returns an error if a test fails, or if a part of a cluster is left.
pub(super) fn run(shell: &mut Shell, options: &Test) -> Result<()> {
    let program = cluster::program(shell)?;
    let only_quick: &[&str] = if options.quick { &["--quick"] } else { &[] };
    let artifacts = cluster::artifacts(shell, &program, only_quick)?;
    let filter = options.filter.as_deref();
    if has_tests(shell, "control-plane", filter)? {
        control_plane(shell, &artifacts, options)?;
    }
    let has_clusters = !options.quick && has_tests(shell, "kubernetes", filter)?;
    let has_network = has_tests(shell, "network", filter)?;
    if !has_clusters && !has_network {
        return Ok(());
    }
    let _lock = exclude_other_runs(shell, Path::new(LOCK))?;
    if has_clusters {
        clusters(shell, &program, &artifacts, filter)?;
    }
    if has_network {
        network(shell, &program, &artifacts, options)?;
    }

    Ok(())
}

/// Waits until no other run uses the clusters of tests, and excludes others until the result is dropped.
/// The kernel unlocks the file of a run that crashed, whose clusters this run then uses and removes.
///
/// # Errors
///
/// Returns an error if the file cannot be locked, or if a signal arrives meanwhile.
fn exclude_other_runs(shell: &mut Shell, path: &Path) -> Result<File> {
    let context = || format!("failed to lock {}: run this as root", path.display());
    let file = File::create(path).with_context(context)?;
    let mut is_noted = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        if !is_noted {
            console::note("another run uses the clusters of tests: waiting until it ends");
            is_noted = true;
        }
        let mut sleep = Command::new("sleep");
        sleep.arg("1");
        shell.run(sleep)?;
    }
}

/// Returns whether a test binary has tests whose names contain `filter`. Without tests, neither
/// clusters nor images are needed.
///
/// # Errors
///
/// Returns an error if the test binary cannot be built.
fn has_tests(shell: &mut Shell, name: &str, filter: Option<&str>) -> Result<bool> {
    let Some(filter) = filter else {
        return Ok(true);
    };
    let mut list = workspace::cargo_for("test");
    list.args(["--test", name, "--", "--list", filter]);
    let output = shell.capture(list)?;
    if !output.status.success() {
        bail!("failed to build the tests `{name}`: see above");
    }

    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .any(|line| line.ends_with(": test")))
}

/// Runs the tests that need an API server without nodes.
///
/// # Errors
///
/// Returns the errors of [`run`].
fn control_plane(shell: &mut Shell, artifacts: &Path, options: &Test) -> Result<()> {
    console::step("Control plane: an API server without nodes");
    let mut build = workspace::cargo_for("build");
    for program in ["controller-manager", "edge", "liqoctl", "virtual-kubelet"] {
        build.args(["--bin", program]);
    }
    shell.run(build)?;
    let program = |name: &str| workspace::target().join("debug").join(name);
    let filter = options.filter.as_deref();
    run_suite(shell, None, "control-plane", filter, |tests| {
        if options.quick {
            tests.env(ESSENTIAL, "1");
        }
        tests.env(ARTIFACTS, artifacts).env(CHART, chart());
        tests
            .env(MANAGER, program("controller-manager"))
            .env(EDGE, program("edge"))
            .env(LIQOCTL, program("liqoctl"))
            .env(VIRTUAL_KUBELET, program("virtual-kubelet"));
    })
}

fn chart() -> PathBuf {
    workspace::root().join("charts/liqo")
}

/// Runs the tests of the Kubernetes laboratory itself.
///
/// # Errors
///
/// Returns the errors of [`run`].
fn clusters(
    shell: &mut Shell,
    program: &Path,
    artifacts: &Path,
    filter: Option<&str>,
) -> Result<()> {
    let guests = cluster::guest_programs(shell, "guest/bpf")?;

    console::step("Kubernetes: two clusters with equal CIDRs, and faults");
    run_suite(shell, Some(program), "kubernetes", filter, |tests| {
        tests.env(ARTIFACTS, artifacts).env(GUESTS, &guests);
    })
}

/// Runs the tests of Liqo's networking on connected clusters.
///
/// # Errors
///
/// Returns the errors of [`run`].
fn network(shell: &mut Shell, program: &Path, artifacts: &Path, options: &Test) -> Result<()> {
    let release = Release {
        artifacts: artifacts.to_path_buf(),
        images: image::build_all(shell)?,
        liqoctl: liqoctl::released(shell)?,
    };

    console::step("Network: two connected clusters with equal pod CIDRs");
    let filter = options.filter.as_deref();
    run_suite(shell, Some(program), "network", filter, |tests| {
        if options.quick {
            tests.env(ESSENTIAL, "1");
        }
        tests.env(REPEAT, options.repeat.to_string());
        release.describe_to(tests);
    })
}

/// Runs one test binary of the laboratory. `program` removes the clusters of the tests. It is `None`
/// for tests without clusters, because clusters that exist then belong to another run.
///
/// # Errors
///
/// Returns the errors of [`run`].
fn run_suite(
    shell: &mut Shell,
    program: Option<&Path>,
    name: &str,
    filter: Option<&str>,
    complete: impl Fn(&mut Command),
) -> Result<()> {
    let tests = |words: &[&str]| {
        let mut tests = workspace::cargo_for("test");
        tests.args(["--test", name]).args(words);
        tests
    };
    shell.run(tests(&["--no-run"]))?;

    repeat::run(shell, name, filter, |shell, log, choice| {
        let mut tests = tests(&["--"]);
        tests.env(FAILURES, log);
        complete(&mut tests);
        match choice {
            Choice::All => &mut tests,
            Choice::Filter(part) => tests.arg(part),
            Choice::Exactly(names) => tests.env(ONLY, names.join(",")),
        };
        match program {
            Some(program) => run_once(shell, program, tests),
            None => shell.run(tests),
        }
    })
}

fn run_once(shell: &mut Shell, program: &Path, tests: Command) -> Result<()> {
    let start = Instant::now();
    let outcome = shell.run(tests);
    // Clusters are also removed after a failure or an interrupt, when the tests could not clean
    // up.
    if env::var_os(KEEP).is_none() {
        for name in clusters_up() {
            let mut down = Command::new(program);
            down.args(["down", &name]);
            shell.run(down)?;
        }
    }
    outcome?;
    let left = left();
    if env::var_os(KEEP).is_none() && !left.is_empty() {
        bail!("the tests left on this machine: {}", left.join(", "));
    }
    console::done("done", start.elapsed());

    Ok(())
}

/// Returns the names of existing clusters that tests have created.
fn clusters_up() -> Vec<String> {
    names_in(CLUSTERS)
        .into_iter()
        .filter(|name| name.starts_with(MARK))
        .collect()
}

/// Returns the remains of tests' clusters. If no cluster exists, also returns the remains of the
/// laboratory itself.
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

    left.extend(clusters_up());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn a_run_waits_until_another_one_has_ended() {
        let path = env::temp_dir().join(format!("liqo-lab-tests-{}.lock", std::process::id()));
        let first = exclude_other_runs(&mut Shell::new().unwrap(), &path).unwrap();

        let (sender, locked) = mpsc::channel();
        let waiting = path.clone();
        let second = thread::spawn(move || {
            let lock = exclude_other_runs(&mut Shell::new().unwrap(), &waiting);
            sender.send(lock.is_ok())
        });
        let early = locked.recv_timeout(Duration::from_millis(300));
        drop(first);

        assert!(early.is_err());
        assert!(locked.recv().unwrap());
        second.join().unwrap().unwrap();
        fs::remove_file(path).unwrap();
    }
}
