//! Tests of the creation and the removal of clusters, including interruptions and invalid input.

use crate::fixture::{Clusters, Suite, command, parallel, scratch, serial};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster;
use kubernetes_lab::wait::{self, Deadline, SOON};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        up_does_not_change_a_cluster_that_is_up,
        other_settings_of_a_cluster_that_is_up_are_refused,
        errors_for_unknown_names_list_the_known_ones,
        invalid_networks_are_refused_with_the_name_of_the_flag,
        up_without_root_reports_the_reason,
        an_underlay_in_use_is_reported_with_the_device,
        kubeconfig_prints_only_a_path,
        exec_passes_on_output_and_exit_code,
        logs_and_usage_of_a_node_are_printed,
    );
    serial!(
        suite,
        an_interrupted_up_leaves_nothing,
        up_completes_a_cluster_after_a_crash,
        a_full_disk_is_reported_and_leaves_nothing,
    );
}

/// The name of a cluster that only these tests create.
const TORN: &str = "it-torn";

async fn up_does_not_change_a_cluster_that_is_up(clusters: &'static Clusters) -> Result<()> {
    let before: Vec<_> = clusters
        .rome
        .nodes()
        .iter()
        .map(|node| node.pid())
        .collect();

    let output = run(&["up", "it-rome"])?;

    ensure!(output.status.success(), "{}", stderr(&output));
    let after: Vec<_> = clusters
        .rome
        .nodes()
        .iter()
        .map(|node| node.pid())
        .collect();
    ensure!(
        before == after && before.iter().all(Option::is_some),
        "{before:?} {after:?}"
    );
    Ok(())
}

async fn other_settings_of_a_cluster_that_is_up_are_refused(_: &'static Clusters) -> Result<()> {
    let error = refused(&["up", "it-rome", "--nodes", "3"])?;

    ensure!(error.contains("nodes is 2, not 3"), "{error}");
    ensure!(error.contains("down it-rome"), "no remedy: {error}");
    Ok(())
}

async fn errors_for_unknown_names_list_the_known_ones(_: &'static Clusters) -> Result<()> {
    for (words, hint) in [
        (&["kubeconfig", "it-paris"][..], "it-milan, it-rome"),
        (&["down", "it-paris"], "it-milan, it-rome"),
        (&["exec", "it-rome-worker9", "true"], "it-rome-worker"),
        (&["logs", "it-rome-worker", "dockerd"], "kubelet"),
        (
            &["component", "it-rome-worker", "dockerd", "kill"],
            "kubelet",
        ),
        (&["load", "it-rome", "/nowhere.tar"], "/nowhere.tar"),
    ] {
        let error = refused(words)?;
        ensure!(error.contains(hint), "{words:?}: {error}");
    }
    Ok(())
}

async fn invalid_networks_are_refused_with_the_name_of_the_flag(
    _: &'static Clusters,
) -> Result<()> {
    for (words, hint) in [
        (["--pod-cidr", "10.244.1.0/16"], "use 10.244.0.0/16"),
        (["--pod-cidr", "10.244.0.0"], "--pod-cidr"),
        (["--service-cidr", "10.244.0.0/20"], "overlap"),
        (["--pod-cidr", "172.18.0.0/16"], "overlap"),
        (["--nodes", "0"], "--nodes 0"),
        (["--kube-proxy", "magic"], "nftables"),
        (["--underlay", "10.9.0.0/16"], "--underlay 10.9.0.0/16"),
    ] {
        let error = refused(&[&["up", TORN], &words[..]].concat())?;
        ensure!(error.contains(hint), "{words:?}: {error}");
    }
    ensure!(
        !cluster::names()?.iter().any(|name| name == TORN),
        "`up` began to create the cluster"
    );
    Ok(())
}

async fn up_without_root_reports_the_reason(_: &'static Clusters) -> Result<()> {
    // The checkout may be unreadable for other users, so a copy of the program runs.
    let folder = scratch("no-root")?;
    let program = folder.join("cluster");
    fs::copy(command().get_program(), &program)?;
    run_program("chmod", &["-R", "a+rx", &text(&folder)?])?;

    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["up", TORN])
        .output()?;

    ensure!(!output.status.success(), "the command succeeded");
    ensure!(
        stderr(&output).contains("run this as root"),
        "{}",
        stderr(&output)
    );
    Ok(())
}

async fn an_underlay_in_use_is_reported_with_the_device(_: &'static Clusters) -> Result<()> {
    let folder = scratch("taken")?;
    let script = format!(
        "ip link add docker9 type veth peer name other && ip address add 172.18.7.1/24 dev docker9 \
         && ip link set docker9 up && exec {} up {TORN}",
        command().get_program().display()
    );

    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .env("LIQO_LAB_STATE", &folder)
        .output()?;

    ensure!(!output.status.success(), "the command succeeded");
    let error = stderr(&output);
    ensure!(
        error.contains("docker9") && error.contains("--underlay"),
        "{error}"
    );
    ensure!(!folder.exists(), "files are left in {}", folder.display());
    Ok(())
}

async fn kubeconfig_prints_only_a_path(clusters: &'static Clusters) -> Result<()> {
    let output = run(&["kubeconfig", "it-rome"])?;

    let printed = String::from_utf8(output.stdout)?;
    ensure!(
        printed == format!("{}\n", clusters.rome.kubeconfig().display()),
        "{printed:?}"
    );
    ensure!(output.stderr.is_empty(), "it prints more than the path");
    ensure!(
        Path::new(printed.trim()).is_file(),
        "the file does not exist"
    );
    Ok(())
}

async fn exec_passes_on_output_and_exit_code(_: &'static Clusters) -> Result<()> {
    let output = run(&["exec", "it-rome-worker", "sh", "-c", "hostname; exit 7"])?;

    ensure!(output.stdout == b"it-rome-worker\n", "{}", stderr(&output));
    ensure!(output.status.code() == Some(7), "{:?}", output.status);
    Ok(())
}

async fn logs_and_usage_of_a_node_are_printed(_: &'static Clusters) -> Result<()> {
    let logs = run(&["logs", "it-rome-worker", "kubelet", "--tail", "1000"])?;
    let usage = String::from_utf8(run(&["usage"])?.stdout)?;

    let logs = String::from_utf8(logs.stdout)?;
    ensure!(logs.contains("it-rome-worker"), "{logs}");
    let memory = usage
        .lines()
        .find_map(|line| {
            line.strip_prefix("it-rome-control-plane ")?
                .split_whitespace()
                .next()
        })
        .with_context(|| format!("the node is not in {usage}"))?;
    let memory: u64 = memory.parse()?;
    ensure!(
        (100..4_000).contains(&memory),
        "the control plane uses {memory} MiB"
    );
    Ok(())
}

async fn an_interrupted_up_leaves_nothing(_: &'static Clusters) -> Result<()> {
    remove_after_test();
    // The delays differ, so that some signals arrive while the files of a node are created.
    for delay_ms in [0, 20, 40, 60, 80, 120, 160, 250] {
        let mut up = begin(&["up", TORN])?;
        tokio::time::sleep(Duration::from_millis(100 + delay_ms)).await;

        kill(Pid::from_raw(i32::try_from(up.id())?), Signal::SIGINT)?;
        let status = up.wait()?;

        ensure!(
            status.code() == Some(130),
            "after {delay_ms} ms: {status:?}"
        );
        nothing_left(TORN).with_context(|| format!("after {delay_ms} ms"))?;
    }

    Ok(())
}

async fn up_completes_a_cluster_after_a_crash(_: &'static Clusters) -> Result<()> {
    remove_after_test();
    let mut up = begin(&["up", TORN])?;
    first_node().await?;
    up.kill()?;
    up.wait()?;
    ensure!(
        cluster::names()?.iter().any(|name| name == TORN),
        "nothing is left to complete"
    );

    let again = run(&["up", TORN])?;
    let nodes = run(&["kubectl", TORN, "get", "nodes", "--no-headers"])?;
    let down = run(&["down", TORN])?;

    ensure!(again.status.success(), "{}", stderr(&again));
    let nodes = String::from_utf8(nodes.stdout)?;
    ensure!(nodes.matches(" Ready ").count() == 2, "{nodes}");
    ensure!(down.status.success(), "{}", stderr(&down));
    nothing_left(TORN)
}

async fn a_full_disk_is_reported_and_leaves_nothing(_: &'static Clusters) -> Result<()> {
    let folder = scratch("full")?;
    let script = format!(
        "mount -t tmpfs tmpfs /run && mount -t tmpfs -o size=200k tmpfs {0} && {1} up --underlay 172.29.0.0/16 {TORN}; \
         code=$?; ls {0}; exit $code",
        folder.display(),
        command().get_program().display()
    );

    let output = Command::new("unshare")
        .args([
            "--mount",
            "--net",
            "--propagation",
            "private",
            "sh",
            "-c",
            &script,
        ])
        .env("LIQO_LAB_STATE", &folder)
        .output()?;

    ensure!(!output.status.success(), "the command succeeded");
    ensure!(
        stderr(&output).contains("No space left on device"),
        "{}",
        stderr(&output)
    );
    ensure!(
        output.stdout.is_empty(),
        "left: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    nothing_left(TORN)
}

/// Registers a cleanup that removes the cluster [`TORN`].
fn remove_after_test() {
    cleanup::defer(TORN, async || {
        match cluster::names()?.iter().any(|name| name == TORN) {
            true => cluster::remove(TORN),
            false => Ok(()),
        }
    });
}

/// Waits until the process of the first node of [`TORN`] runs.
async fn first_node() -> Result<()> {
    let node = kubernetes_lab::node::Node::of(TORN, &format!("{TORN}-control-plane"));
    wait::until(Deadline::after(SOON), "the first node to run", async || {
        node.pid().context("it does not run").map(drop)
    })
    .await
}

fn nothing_left(name: &str) -> Result<()> {
    ensure!(
        !cluster::names()?.iter().any(|known| known == name),
        "the folder is left"
    );
    let namespaces = run_program("ip", &["netns"])?;
    ensure!(!namespaces.contains(name), "{namespaces}");
    let groups = run_program(
        "find",
        &[
            "/sys/fs/cgroup",
            "-maxdepth",
            "4",
            "-name",
            &format!("{name}*"),
        ],
    )?;
    ensure!(groups.is_empty(), "{groups}");
    let processes = run_program("ps", &["-eo", "args"])?;
    let left: Vec<_> = processes
        .lines()
        .filter(|line| line.contains(&format!("{name}-")) && !line.starts_with("ps "))
        .collect();
    ensure!(left.is_empty(), "{left:?}");

    Ok(())
}

fn begin(words: &[&str]) -> Result<Child> {
    command()
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("failed to start the laboratory's command")
}

fn run(words: &[&str]) -> Result<Output> {
    command()
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("failed to start the laboratory's command")
}

fn refused(words: &[&str]) -> Result<String> {
    let output = run(words)?;
    ensure!(!output.status.success(), "{words:?} succeeded");

    Ok(stderr(&output))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run_program(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    ensure!(output.status.success(), "{program}: {}", stderr(&output));

    Ok(String::from_utf8(output.stdout)?)
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("a path is UTF-8")
}
