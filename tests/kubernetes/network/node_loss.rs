//! Nodes with a gateway are drained, die and come back while traffic flows between pods on
//! other nodes.

use crate::MILAN;
use crate::fixture::{Peering, Suite, serial};
use crate::rounds::{Ends, Rounds, lost_a_replica, lost_nothing};
use crate::whole::{liqo, until_met_at, until_whole};
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
        streams_survive_the_loss_of_the_node_that_all_sessions_passed,
    );
}

/// Kubernetes misses a kubelet after 50 s.
const MISSED: Duration = Duration::from_secs(90);

/// The node that is drained or lost: not that of the API server.
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

/// A node port leads to any gateway, so the sessions with both may all pass the node of one. They
/// do not stay so once the client may call another node.
async fn streams_survive_the_loss_of_the_node_that_all_sessions_passed(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peering.clusters();
    let node = milan.node(NODE);
    let all = addresses(milan)?;
    let passed = *all.get(usize::from(NODE)).context("no second node")?;
    let mut rounds = Rounds::start(peering, "passed-node", Ends::FirstNodes).await?;
    while rounds.another().is_some() {
        until_whole(peering).await?;
        call(rome, &[passed]).await?;
        until_met_at(peering, &[passed]).await?;
        call(rome, &all).await?;
        until_met_at(peering, &all).await?;
        until_whole(peering).await?;
        let power = power(&node);
        let outcome = rounds.promise(lost_a_replica, "passed-node", async |traffic| {
            node.kill()?;
            traffic.flows_on()
        });
        outcome.await?;
        power.run().await?;
        ready(milan, node.name(), "True").await?;
    }

    rounds.finish().await
}

/// Where the nodes of a cluster are.
fn addresses(cluster: &Cluster) -> Result<Vec<Ipv4Addr>> {
    Ok(cluster.node_specs()?.iter().map(|node| node.ip).collect())
}

/// Has a client call a server at these addresses.
async fn call(client: &Cluster, addresses: &[Ipv4Addr]) -> Result<()> {
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
        until_met_at(peering, &addresses(&peering.milan)?).await?;
        until_whole(peering).await?;
        let power = power(&node);
        let outcome = rounds.promise(lost_a_replica, case, async |traffic| {
            node.kill()?;
            traffic.flows_on()?;
            // What Kubernetes does then must not cost anything either.
            ready(at, node.name(), "Unknown").await
        });
        outcome.await?;

        let back = rounds.promise(lost_nothing, &returned, async |_| {
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

/// Starts a node that is killed later: when the result runs, at the latest after the test.
fn power(node: &Node) -> Deferred {
    let node = node.clone();
    cleanup::defer(format!("power of {}", node.name()), async move || {
        node.restart()
    })
}

async fn ready(cluster: &Cluster, node: &str, wanted: &str) -> Result<()> {
    let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
    let liqo = liqo(cluster).await?;
    let what = format!("{node}'s readiness to be {wanted}");
    until(Deadline::after(MISSED), &what, async || {
        let is = liqo.get(&format!("node/{node}"), path).await?;
        ensure!(is == wanted, "it is {is}");
        Ok(())
    })
    .await
}
