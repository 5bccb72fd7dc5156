//! Tests that delete, kill and roll out gateways and route agents under traffic.

use crate::converged::{AGENT, Gateway, gateways, liqo};
use crate::fixture::{Peering, Suite, serial, until_connections_are};
use crate::rounds::{Ends, Rounds, lost_a_replica, lost_nothing};
use anyhow::{Context as _, Result};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::pod;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        streams_survive_a_deleted_gateway_of_the_server,
        streams_survive_a_deleted_gateway_of_the_client,
        streams_survive_a_killed_gateway_process_of_the_server,
        streams_survive_a_killed_gateway_process_of_the_client,
        a_rollout_of_the_servers_gateways_loses_nothing,
        a_rollout_of_the_clients_gateways_loses_nothing,
        a_deleted_route_agent_of_the_server_loses_nothing,
        a_deleted_route_agent_of_the_client_loses_nothing,
        a_route_agents_restart_loses_nothing,
        streams_survive_a_rollout_of_everything,
    );
}

async fn streams_survive_a_deleted_gateway_of_the_server(peering: &'static Peering) -> Result<()> {
    deleted_gateway(peering, &peering.milan, "deleted-server").await
}

async fn streams_survive_a_deleted_gateway_of_the_client(peering: &'static Peering) -> Result<()> {
    deleted_gateway(peering, &peering.rome, "deleted-client").await
}

async fn streams_survive_a_killed_gateway_process_of_the_server(
    peering: &'static Peering,
) -> Result<()> {
    killed_gateway(peering, &peering.milan, "killed-server").await
}

async fn streams_survive_a_killed_gateway_process_of_the_client(
    peering: &'static Peering,
) -> Result<()> {
    killed_gateway(peering, &peering.rome, "killed-client").await
}

async fn a_rollout_of_the_servers_gateways_loses_nothing(peering: &'static Peering) -> Result<()> {
    planned(peering, &peering.milan, "gateways-server", GATEWAYS).await
}

async fn a_rollout_of_the_clients_gateways_loses_nothing(peering: &'static Peering) -> Result<()> {
    planned(peering, &peering.rome, "gateways-client", GATEWAYS).await
}

async fn a_deleted_route_agent_of_the_server_loses_nothing(
    peering: &'static Peering,
) -> Result<()> {
    deleted_agent(peering, &peering.milan, "deleted-agent-server").await
}

async fn a_deleted_route_agent_of_the_client_loses_nothing(
    peering: &'static Peering,
) -> Result<()> {
    deleted_agent(peering, &peering.rome, "deleted-agent-client").await
}

async fn a_route_agents_restart_loses_nothing(peering: &'static Peering) -> Result<()> {
    planned(peering, &peering.rome, "agents-client", AGENTS).await?;
    planned(peering, &peering.milan, "agents-server", AGENTS).await
}

async fn streams_survive_a_rollout_of_everything(peering: &'static Peering) -> Result<()> {
    let rounds = Rounds::start(peering, "rollout", Ends::Everywhere).await?;
    let rollouts = rounds.each(lost_a_replica, async |_| {
        for cluster in peering.clusters() {
            for what in [GATEWAYS, AGENTS, "deployment/liqo-controller-manager"] {
                roll_out(cluster, what).await?;
            }
        }
        Ok(())
    });
    rollouts.await?;
    until_connections_are(peering, "Connected").await
}

const GATEWAYS: &str = "deployment/liqo-gateway";

const AGENTS: &str = "daemonset/liqo-fabric";

/// Deletes the pod of a gateway in each round, without a grace period.
async fn deleted_gateway(peering: &'static Peering, at: &Cluster, case: &str) -> Result<()> {
    let rounds = Rounds::start(peering, case, Ends::Everywhere).await?;
    let all = rounds.each(lost_a_replica, async |round| {
        let liqo = liqo(at).await?;
        let pod = one_gateway(at, round).await?.name;
        liqo.kubectl(&["delete", "pod", &pod, "--grace-period=0", "--force"])
            .await?;
        liqo.rolled_out(GATEWAYS).await
    });
    all.await
}

/// Kills the process of a gateway in each round. The kubelet restarts the process.
async fn killed_gateway(peering: &'static Peering, at: &Cluster, case: &str) -> Result<()> {
    let rounds = Rounds::start(peering, case, Ends::Everywhere).await?;
    let all = rounds.each(lost_a_replica, async |round| {
        let gateway = one_gateway(at, round).await?;
        kill(&gateway)?;
        restarted(at, &gateway).await
    });
    all.await
}

/// Deletes the pod of a route agent in each round, alternating between the nodes.
async fn deleted_agent(peering: &'static Peering, at: &Cluster, case: &str) -> Result<()> {
    let rounds = Rounds::start(peering, case, Ends::Everywhere).await?;
    let all = rounds.each(lost_nothing, async |round| {
        let liqo = liqo(at).await?;
        let pods = liqo.pods(AGENT).await?;
        let pod = pods.get(round % pods.len().max(1)).context("no agent")?;
        liqo.kubectl(&["delete", "pod", pod]).await?;
        liqo.rolled_out(AGENTS).await
    });
    all.await
}

/// Restarts a workload in each round by a rollout.
async fn planned(
    peering: &'static Peering,
    at: &Cluster,
    case: &str,
    what: &'static str,
) -> Result<()> {
    let rounds = Rounds::start(peering, case, Ends::Everywhere).await?;
    let all = rounds.each(lost_nothing, async |_| roll_out(at, what).await);
    all.await
}

async fn roll_out(cluster: &Cluster, what: &str) -> Result<()> {
    let liqo = liqo(cluster).await?;
    liqo.kubectl(&["rollout", "restart", what]).await?;
    liqo.rolled_out(what).await
}

/// Returns a gateway, alternating between the gateways from round to round.
async fn one_gateway(cluster: &Cluster, round: usize) -> Result<Gateway> {
    let gateways = gateways(cluster).await?;
    let place = round % gateways.len().max(1);

    gateways.into_iter().nth(place).context("no gateway")
}

/// Kills the process of a gateway.
pub(crate) fn kill(gateway: &Gateway) -> Result<()> {
    pod::kill(&gateway.uid, "gateway")
}

/// Waits until the kubelet has restarted a gateway, and the gateway is ready.
pub(crate) async fn restarted(cluster: &Cluster, gateway: &Gateway) -> Result<()> {
    let liqo = liqo(cluster).await?;
    let pod = format!("pod/{}", gateway.name);
    let restarts = gateway.restarts + 1;
    let path = format!("jsonpath={{.status.containerStatuses[0].restartCount}}={restarts}");
    liqo.wait(&pod, &path).await?;
    liqo.wait(&pod, "Ready").await
}
