//! Tests that reset and uninstallation leave neither objects nor network state on nodes.

use crate::fixture::{LIQO, Peering, SOON, Suite, install, liqoctl, liqoctl_command, serial};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::suite;
use kubernetes_lab::wait::{Deadline, until};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_reset_removes_the_peering_and_a_connect_restores_it,
        an_uninstall_leaves_nothing_and_an_install_restores_the_peering,
        a_reset_and_an_uninstall_complete_while_the_other_cluster_is_down,
    );
}

/// The time within which a reset or an uninstallation must complete.
const COMPLETED: Duration = Duration::from_secs(60);

async fn a_reset_removes_the_peering_and_a_connect_restores_it(
    peering: &'static Peering,
) -> Result<()> {
    peering.network("reset", &["--wait"])?;

    nothing_of(&peering.rome, MILAN).await?;
    nothing_of(&peering.milan, ROME).await?;
    let (code, shown) = connect_on_a_terminal_without_input(peering)?;
    ensure!(code == Some(1), "exit code {code:?}:\n{shown}");
    for expected in [
        "it-milan claims the pod CIDR 10.244.0.0/16",
        "it-rome claims the pod CIDR 10.244.0.0/16",
        "overlaps the pod CIDR 10.244.0.0/16 of the local cluster",
        "[y/N]",
        "nothing was changed",
    ] {
        ensure!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    nothing_of(&peering.rome, MILAN).await?;
    nothing_of(&peering.milan, ROME).await?;
    peering.connect()
}

/// Runs `liqoctl network connect` on a terminal whose input has ended. Returns exit code and
/// output.
fn connect_on_a_terminal_without_input(peering: &Peering) -> Result<(Option<i32>, String)> {
    let command = liqoctl_command(&peering.rome)?;
    let line = format!(
        "{} network connect --remote-kubeconfig={}",
        command.get_program().display(),
        peering.milan.kubeconfig().display(),
    );
    // `script` runs a command on a new pseudo-terminal.
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env("KUBECONFIG", peering.rome.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .context("failed to start script")?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();

    Ok((output.status.code(), shown))
}

/// Waits until a cluster has neither objects nor routes for the peer `there`, which is its only
/// peer.
pub(crate) async fn nothing_of(cluster: &Cluster, there: &str) -> Result<()> {
    let tenant = format!("liqo-tenant-{there}");
    let what = format!("nothing to be left of the peering in {}", cluster.name());
    until(Deadline::after(SOON), &what, async || {
        let kinds = "configurations,gatewayservers,gatewayclients,publickeies,connections";
        let left = kubectl(cluster, &["get", kinds, "-A", "-o", "name"])?;
        ensure!(left.trim().is_empty(), "{left}");
        let networks = ["get", "networks.ipam.liqo.io", "-n", &tenant, "-o", "name"];
        let networks = kubectl(cluster, &networks)?;
        ensure!(networks.trim().is_empty(), "{networks}");
        for node in cluster.nodes() {
            let routes = node.exec("ip", &["route", "show", "table", "27761"])?;
            // The routes to the cluster's own gateways (169.254.19.0/24) do not belong to a peer.
            let mut others = routes.lines().filter(|it| !it.contains("169.254.19."));
            ensure!(others.next().is_none(), "{routes}");
        }
        Ok(())
    })
    .await
}

async fn an_uninstall_leaves_nothing_and_an_install_restores_the_peering(
    peering: &'static Peering,
) -> Result<()> {
    peering.network("reset", &["--wait"])?;
    for cluster in peering.clusters() {
        let start = Instant::now();
        liqoctl(cluster, &["uninstall", "--purge", "--skip-confirm"])?;
        ensure!(start.elapsed() < COMPLETED, "{:?}", start.elapsed());
        nothing_is_left(cluster)?;
    }

    for cluster in peering.clusters() {
        install(cluster)?;
    }
    peering.connect()
}

async fn a_reset_and_an_uninstall_complete_while_the_other_cluster_is_down(
    peering: &'static Peering,
) -> Result<()> {
    for node in peering.milan.nodes() {
        node.kill()?;
    }

    let start = Instant::now();
    // Like upstream's command, `liqoctl uninstall` refuses while a peering exists.
    let refused = liqoctl(&peering.rome, &["uninstall", "--purge", "--skip-confirm"]);
    ensure!(refused.is_err(), "uninstalled in spite of a peering");
    let alone = format!("--remote-cluster-id={MILAN}");
    peering.network("reset", &["--wait", &alone])?;
    ensure!(start.elapsed() < COMPLETED, "{:?}", start.elapsed());
    eprintln!("reset alone ({:.1} s)", start.elapsed().as_secs_f64());
    nothing_of(&peering.rome, MILAN).await?;

    let start = Instant::now();
    liqoctl(&peering.rome, &["uninstall", "--purge", "--skip-confirm"])?;
    ensure!(start.elapsed() < COMPLETED, "{:?}", start.elapsed());
    nothing_is_left(&peering.rome)?;

    suite::up(vec![peering.milan.spec.clone()])?;
    install(&peering.rome)?;
    peering.connect()
}

fn nothing_is_left(cluster: &Cluster) -> Result<()> {
    let all = |words: &[&str]| kubectl(cluster, &[&["get"], words, &["-o", "name"]].concat());
    let objects = all(&["crd,clusterroles,clusterrolebindings,namespaces"])?;
    let webhooks = all(&["mutatingwebhookconfigurations,validatingwebhookconfigurations"])?;
    let policies = all(&["validatingadmissionpolicies,validatingadmissionpolicybindings"])?;
    let bindings = all(&["rolebindings", "--all-namespaces"])?;
    let left: Vec<_> = objects
        .lines()
        .chain(webhooks.lines())
        .chain(policies.lines())
        .chain(bindings.lines())
        .filter(|name| name.contains(LIQO))
        .collect();
    ensure!(left.is_empty(), "{}: {left:?}", cluster.name());

    for node in cluster.nodes() {
        let state = [
            node.exec("ip", &["-o", "link"])?,
            node.exec("ip", &["rule"])?,
            node.exec("ip", &["nexthop"])?,
            node.exec("nft", &["list", "tables"])?,
            node.exec("ls", &["/run/netns"])?,
        ];
        let left: Vec<_> = state
            .iter()
            .flat_map(|text| text.lines())
            .filter(|line| {
                line.contains(LIQO) || line.contains("27761") || line.contains("proto 108")
            })
            .collect();
        ensure!(left.is_empty(), "{}: {left:?}", node.name());
    }

    Ok(())
}

/// Runs `kubectl` as the administrator of a cluster, and returns the standard output.
pub(crate) fn kubectl(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let mut command = cluster.kubectl();
    let output = command.args(words).output()?;
    ensure!(
        output.status.success(),
        "kubectl {}: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
