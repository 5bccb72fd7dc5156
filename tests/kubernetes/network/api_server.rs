//! Tests that traffic does not depend on API servers, and that changes take effect after an outage
//! of the API servers.

use crate::converged::{gateways, liqo, until_converged};
use crate::failover::kill;
use crate::fixture::{
    Peering, SOON, Suite, Web, connection, remapped, serial, until_connections_are,
};
use crate::rounds::{self, Ends, Rounds, lost_a_replica, lost_nothing};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::node::control::{self, Request};
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        streams_need_no_api_server_and_changes_take_effect_afterwards
    );
}

/// The time for which both API servers are stopped.
const AWAY: Duration = Duration::from_secs(60);

/// The time for which both API servers are stopped in runs with several rounds.
const AWAY_LONG: Duration = Duration::from_secs(300);

/// The time within which Liqo must recover after an outage of the API server. The kubelet restarts
/// containers with backoff. A starting API server refuses the requests of kube-proxy. Kube-proxy
/// may then wait for 100 s before it restores the API server's endpoint.
const RECOVERED: Duration = Duration::from_secs(180);

const API_SERVER: &str = "kube-apiserver";

async fn streams_need_no_api_server_and_changes_take_effect_afterwards(
    peering: &'static Peering,
) -> Result<()> {
    let away = if rounds::count()? > 1 {
        AWAY_LONG
    } else {
        AWAY
    };
    let mut rounds = Rounds::start(peering, "api-server", Ends::Everywhere).await?;
    until_converged(peering).await?;
    let killed = gateways(&peering.milan).await?;
    let killed = killed.into_iter().next().context("no gateway")?;
    let before = restarts(peering).await?;

    let mut stopped = Vec::new();
    for cluster in peering.clusters() {
        stopped.push(cleanup::defer("a stopped API server", async move || {
            control(cluster, Request::Start(API_SERVER.to_owned()))
        }));
        control(cluster, Request::Stop(API_SERVER.to_owned()))?;
    }
    let alone = rounds.measure("no API server", async |traffic| traffic.flows_for(away / 2));
    let alone = alone.await?;
    let lost = rounds.measure("and a killed gateway", async |traffic| {
        kill(&killed)?;
        traffic.flows_for(away / 2)
    });
    let lost = lost.await?;
    for api_server in stopped {
        api_server.run().await?;
    }
    let since = Timestamp::now();
    let back = rounds.measure("API server back", async |_| {
        recovered(peering, since).await?;
        a_change_takes_effect(peering).await
    });
    let back = back.await?;
    rounds.finish().await?;

    lost_nothing(alone)?;
    lost_a_replica(lost)?;
    // The API servers were away for longer than the grace period of nodes (50 s), so Kubernetes marks all pods as not ready
    // until the kubelets have renewed their Leases. Meanwhile the Service of the server's gateways has no endpoints, and
    // kube-proxy drops the packets of the tunnels. A Service that published unready replicas would direct sessions to
    // replicas on lost nodes.
    lost_a_replica(back)?;
    let mut again = restarts(peering).await?;
    again.retain(|pod, count| before.get(pod) != Some(count));
    let others: Vec<_> = again.keys().filter(|pod| **pod != killed.name).collect();
    ensure!(others.is_empty(), "restarted or replaced: {again:?}");
    until_converged(peering).await
}

/// Waits until both API servers are ready, and Connections have a latency that was measured after
/// `since`.
async fn recovered(peering: &Peering, since: Timestamp) -> Result<()> {
    for cluster in peering.clusters() {
        let liqo = liqo(cluster).await?;
        until(Deadline::after(SOON), "the API server", async || {
            liqo.kubectl(&["get", "--raw=/readyz"]).await.map(drop)
        })
        .await?;
    }
    until_connections_are(peering, "Connected").await?;
    for (here, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
        // Gateways reach the API server through kube-proxy, so gateways recover as late as
        // kube-proxy.
        until(Deadline::after(RECOVERED), "a new latency", async || {
            let status = connection(here, there).await?.status.unwrap_or_default();
            let measured = status.latency.and_then(|it| it.timestamp);
            let measured = measured.context("no timestamp")?.0;
            ensure!(measured > since, "it is of {measured}");
            Ok(())
        })
        .await?;
    }
    for cluster in peering.clusters() {
        let liqo = liqo(cluster).await?;
        until(
            Deadline::after(RECOVERED),
            "all pods to be ready",
            async || {
                let path = "{range .items[*]}{.metadata.name}={.status.conditions[?(@.type==\"Ready\")].status} {end}";
                let pods = liqo.get("pods", path).await?;
                ensure!(!pods.contains("=False"), "{pods}");
                Ok(())
            },
        )
        .await?;
    }

    Ok(())
}

/// Asserts that a new pod of milan is reachable by a new mapped address.
async fn a_change_takes_effect(peering: &Peering) -> Result<()> {
    let rome = Web::up(&peering.rome, "api-server-after").await?;
    let milan = Web::up(&peering.milan, "api-server-after").await?;
    let to = milan.pods.first().context("no pod")?;
    let object = format!(
        "apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata:
  name: pod
spec:
  ip: {}
",
        to.address
    );
    milan.namespace.apply(&object).await?;
    let path = "jsonpath={.status.ip}";
    milan.namespace.wait("ip/pod", path).await?;
    let mapped = milan.namespace.get("ip/pod", "{.status.ip}").await?;
    let address = remapped(&peering.rome, MILAN, mapped.parse()?).await?;

    for from in &rome.pods {
        let what = format!("a response of {} from {address}", to.name);
        until(Deadline::after(SOON), &what, async || {
            let response = rome.get(from, &format!("{address}:8080")).await?;
            ensure!(response.contains(&to.name), "{response}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Returns the restart count of each pod of Liqo, by name.
async fn restarts(peering: &Peering) -> Result<BTreeMap<String, String>> {
    let mut restarts = BTreeMap::new();
    for cluster in peering.clusters() {
        let path =
            "{range .items[*]}{.metadata.name}={.status.containerStatuses[0].restartCount} {end}";
        let pods = liqo(cluster).await?.get("pods", path).await?;
        let pods = pods.split_whitespace().filter_map(|it| it.split_once('='));
        restarts.extend(pods.map(|(pod, count)| (pod.to_owned(), count.to_owned())));
    }

    Ok(restarts)
}

/// Sends a request to process 1 of the control plane node, which supervises the API server.
fn control(cluster: &Cluster, request: Request) -> Result<()> {
    control::send(cluster.node(0).name(), &request).map(drop)
}
