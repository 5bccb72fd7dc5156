//! Gateways and route agents go and come while traffic flows.

use crate::fixture::{LIQO, Peering, Suite, rough, until_connections_are};
use crate::flow::{Outcome, Traffic};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::suite;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    rough!(
        suite,
        streams_survive_a_deleted_gateway_of_the_server,
        streams_survive_a_deleted_gateway_of_the_client,
        streams_survive_a_killed_gateway_process,
        a_route_agents_restart_loses_nothing,
        streams_survive_a_rollout_of_everything,
    );
}

/// Between datagrams.
const INTERVAL: Duration = Duration::from_millis(10);

/// What losing a replica may cost the fabric.
const LOST_REPLICA: Duration = Duration::from_secs(1);

/// The same as TCP shows it: its retransmissions back off.
const LOST_REPLICA_TCP: Duration = Duration::from_secs(2);

const GATEWAY: &str = "networking.liqo.io/component=gateway";

async fn streams_survive_a_deleted_gateway_of_the_server(peering: &'static Peering) -> Result<()> {
    let outcome = deleted(peering, &peering.milan, "deleted-server").await?;
    survived(&outcome)
}

async fn streams_survive_a_deleted_gateway_of_the_client(peering: &'static Peering) -> Result<()> {
    let outcome = deleted(peering, &peering.rome, "deleted-client").await?;
    survived(&outcome)
}

async fn streams_survive_a_killed_gateway_process(peering: &'static Peering) -> Result<()> {
    let traffic = Traffic::start(peering, "killed-process", INTERVAL).await?;
    let liqo = liqo(&peering.milan).await?;
    let pod = first_gateway(&liqo).await?;

    // Process 1 of a pod hears no signal from within; from without it does.
    let uid = liqo.get(&format!("pod/{pod}"), "{.metadata.uid}").await?;
    kill(&uid)?;
    let path = "jsonpath={.status.containerStatuses[0].restartCount}=1";
    liqo.wait(&format!("pod/{pod}"), path).await?;
    liqo.wait(&format!("pod/{pod}"), "Ready").await?;

    survived(&traffic.finish().await?)
}

async fn a_route_agents_restart_loses_nothing(peering: &'static Peering) -> Result<()> {
    let traffic = Traffic::start(peering, "route-agent", INTERVAL).await?;
    let liqo = liqo(&peering.rome).await?;

    liqo.kubectl(&["rollout", "restart", "daemonset/liqo-fabric"])
        .await?;
    liqo.rolled_out("daemonset/liqo-fabric").await?;

    let outcome = traffic.finish().await?;
    ensure!(outcome.udp_lost == 0, "{outcome:?}");
    Ok(())
}

async fn streams_survive_a_rollout_of_everything(peering: &'static Peering) -> Result<()> {
    let traffic = Traffic::start(peering, "rollout", INTERVAL).await?;

    for cluster in peering.clusters() {
        let liqo = liqo(cluster).await?;
        for what in [
            "deployment/liqo-gateway",
            "daemonset/liqo-fabric",
            "deployment/liqo-controller-manager",
        ] {
            liqo.kubectl(&["rollout", "restart", what]).await?;
            liqo.rolled_out(what).await?;
        }
    }

    survived(&traffic.finish().await?)?;
    until_connections_are(peering, "Connected").await
}

/// What comes of a gateway pod that is deleted at once, without time to say so.
async fn deleted(peering: &Peering, cluster: &Cluster, name: &str) -> Result<Outcome> {
    let traffic = Traffic::start(peering, name, INTERVAL).await?;
    let liqo = liqo(cluster).await?;
    let pod = first_gateway(&liqo).await?;

    liqo.kubectl(&["delete", "pod", &pod, "--grace-period=0", "--force"])
        .await?;
    liqo.rolled_out("deployment/liqo-gateway").await?;

    traffic.finish().await
}

fn survived(outcome: &Outcome) -> Result<()> {
    ensure!(outcome.udp_outage <= LOST_REPLICA, "{outcome:?}");
    ensure!(outcome.tcp_gap <= LOST_REPLICA_TCP, "{outcome:?}");

    Ok(())
}

async fn liqo(cluster: &Cluster) -> Result<Namespace> {
    Namespace::existing(cluster, LIQO).await
}

async fn first_gateway(liqo: &Namespace) -> Result<String> {
    let pods = liqo.pods(GATEWAY).await?;
    ensure!(pods.len() == 2, "{pods:?}");
    pods.into_iter().next().context("there are two")
}

/// Kills the gateway of the pod with this uid, by the machine.
fn kill(uid: &str) -> Result<()> {
    let is_of_pod = |pid: &str| {
        let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        groups.contains(uid) && name.trim() == "gateway"
    };
    let pid = std::fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|pid| is_of_pod(pid))
        .context("no gateway process in the pod's control group")?;
    suite::machine("kill", &["-9", &pid]).map(drop)
}
