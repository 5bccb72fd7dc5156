//! Tests that drain, kill and restart nodes with a gateway. Traffic flows between pods on other
//! nodes.

use crate::MILAN;
use crate::converged::{liqo, until_converged, until_discovered_at};
use crate::fixture::{Peering, SOON, Suite, serial};
use crate::rounds::{Ends, Rounds, lost_a_replica, lost_nothing};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        draining_a_gateways_node_of_the_server_loses_nothing,
        draining_a_gateways_node_of_the_client_loses_nothing,
        streams_survive_the_loss_and_the_return_of_a_gateways_node_of_the_server,
        streams_survive_the_loss_and_the_return_of_a_gateways_node_of_the_client,
        streams_survive_the_loss_of_the_node_that_forwards_all_sessions,
    );
}

/// The time within which the Ready condition of a killed node must change. The controller manager
/// detects a missing kubelet after 50 s.
const MISSED: Duration = Duration::from_secs(50 + SOON.as_secs());

/// The index of the node that the tests drain or kill. Node 0 runs the API server.
const NODE: u8 = 1;

async fn draining_a_gateways_node_of_the_server_loses_nothing(
    peering: &'static Peering,
) -> Result<()> {
    drained(peering, &peering.milan, "drained-server").await
}

async fn draining_a_gateways_node_of_the_client_loses_nothing(
    peering: &'static Peering,
) -> Result<()> {
    drained(peering, &peering.rome, "drained-client").await
}

async fn streams_survive_the_loss_and_the_return_of_a_gateways_node_of_the_server(
    peering: &'static Peering,
) -> Result<()> {
    lost(peering, &peering.milan, "lost-node-server").await
}

async fn streams_survive_the_loss_and_the_return_of_a_gateways_node_of_the_client(
    peering: &'static Peering,
) -> Result<()> {
    lost(peering, &peering.rome, "lost-node-client").await
}

/// A node port of any node reaches all gateways, so a single node may forward all sessions. Once
/// the client has the addresses of other nodes, the client spreads the sessions over these nodes.
async fn streams_survive_the_loss_of_the_node_that_forwards_all_sessions(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peering.clusters();
    let node = milan.node(NODE);
    let all = addresses(milan)?;
    let forwarding = *all.get(usize::from(NODE)).context("no second node")?;
    let mut rounds = Rounds::start(peering, "passed-node", Ends::FirstNodes).await?;
    while rounds.another().is_some() {
        until_converged(peering).await?;
        set_endpoint(rome, &[forwarding]).await?;
        until_discovered_at(peering, &[forwarding]).await?;
        set_endpoint(rome, &all).await?;
        until_discovered_at(peering, &all).await?;
        until_converged(peering).await?;
        let power = power(&node);
        let outcome = rounds.check(lost_a_replica, "passed-node", async |traffic| {
            node.kill()?;
            traffic.flows_on()
        });
        outcome.await?;
        power.run().await?;
        ready(milan, node.name(), "True").await?;
    }

    rounds.finish().await
}

/// Returns the addresses of the nodes of a cluster.
fn addresses(cluster: &Cluster) -> Result<Vec<Ipv4Addr>> {
    Ok(cluster.node_specs()?.iter().map(|node| node.ip).collect())
}

/// Sets the addresses in `spec.endpoint` of the client's GatewayClient.
async fn set_endpoint(client: &Cluster, addresses: &[Ipv4Addr]) -> Result<()> {
    let tenant = Namespace::existing(client, &format!("liqo-tenant-{MILAN}")).await?;
    let patch = json!({"spec": {"endpoint": {"addresses": addresses}}}).to_string();
    let words = [
        "patch",
        "gatewayclient",
        MILAN,
        "--type=merge",
        "-p",
        &patch,
    ];

    tenant.kubectl(&words).await.map(drop)
}

async fn drained(peering: &'static Peering, at: &Cluster, case: &str) -> Result<()> {
    let rounds = Rounds::start(peering, case, Ends::FirstNodes).await?;
    let all = rounds.each(lost_nothing, async |_| {
        let liqo = liqo(at).await?;
        let node = at.node(NODE);
        let options = [
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--force",
            "--timeout=60s",
        ];
        let words = [["drain", node.name()].as_slice(), &options].concat();
        let (namespace, name) = (liqo.clone(), node.name().to_owned());
        let cordon = cleanup::defer(format!("cordon of {name}"), async move || {
            namespace.kubectl(&["uncordon", &name]).await.map(drop)
        });
        liqo.kubectl(&words).await?;
        liqo.rolled_out("deployment/liqo-gateway").await?;
        cordon.run().await
    });
    all.await
}

async fn lost(peering: &'static Peering, at: &Cluster, case: &str) -> Result<()> {
    let mut rounds = Rounds::start(peering, case, Ends::FirstNodes).await?;
    let returned = case.replace("lost", "returned");
    let node = at.node(NODE);
    while rounds.another().is_some() {
        until_discovered_at(peering, &addresses(&peering.milan)?).await?;
        until_converged(peering).await?;
        let power = power(&node);
        let outcome = rounds.check(lost_a_replica, case, async |traffic| {
            node.kill()?;
            traffic.flows_on()?;
            // The reaction of Kubernetes to the lost node must not interrupt traffic either.
            ready(at, node.name(), "Unknown").await
        });
        outcome.await?;

        let back = rounds.check(lost_nothing, &returned, async |_| {
            power.run().await?;
            ready(at, node.name(), "True").await?;
            let liqo = liqo(at).await?;
            liqo.rolled_out("daemonset/liqo-fabric").await?;
            liqo.rolled_out("deployment/liqo-gateway").await
        });
        back.await?;
    }

    rounds.finish().await
}

/// Registers a cleanup that restarts a node, before the test kills the node.
fn power(node: &Node) -> Deferred {
    let node = node.clone();
    cleanup::defer(format!("power of {}", node.name()), async move || {
        node.restart()
    })
}

async fn ready(cluster: &Cluster, node: &str, expected: &str) -> Result<()> {
    let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
    let liqo = liqo(cluster).await?;
    let what = format!("{node}'s condition Ready to be {expected}");
    until(Deadline::after(MISSED), &what, async || {
        let is = liqo.get(&format!("node/{node}"), path).await?;
        ensure!(is == expected, "it is {is}");
        Ok(())
    })
    .await
}
