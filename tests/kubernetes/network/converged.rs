//! The converged state of both clusters, from which tests start to cause faults.
//!
//! Two gateways run on two nodes. Each gateway has a session with each remote replica, and the
//! route agents use both gateways.

use crate::fixture::{LIQO, Peering, SOON};
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The label selector of gateways.
pub(crate) const GATEWAY: &str = "networking.liqo.io/component=gateway";

/// The label selector of route agents.
pub(crate) const AGENT: &str = "app.kubernetes.io/name=fabric";

const GATEWAYS: usize = 2;

/// A gateway's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) node: String,
    /// The pod's UID, which is part of the paths of the pod's cgroups.
    pub(crate) uid: String,
    pub(crate) restarts: u32,
    is_terminating: bool,
}

/// Returns the namespace in which Liqo is installed.
pub(crate) async fn liqo(cluster: &Cluster) -> Result<Namespace> {
    Namespace::existing(cluster, LIQO).await
}

/// Returns the gateways of a cluster, including terminating ones.
pub(crate) async fn gateways(cluster: &Cluster) -> Result<Vec<Gateway>> {
    let liqo = liqo(cluster).await?;
    let list = liqo.kubectl(&["get", "pods", "-l", GATEWAY, "-o", "json"]);
    let list: Value = serde_json::from_str(&list.await?).context("the list of pods is no JSON")?;
    let pods = list["items"].as_array().context("no items")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();

    Ok(pods
        .iter()
        .map(|pod| Gateway {
            name: text(&pod["metadata"]["name"]),
            node: text(&pod["spec"]["nodeName"]),
            uid: text(&pod["metadata"]["uid"]),
            restarts: pod["status"]["containerStatuses"][0]["restartCount"]
                .as_u64()
                .and_then(|count| count.try_into().ok())
                .unwrap_or_default(),
            is_terminating: pod["metadata"]["deletionTimestamp"].is_string(),
        })
        .collect())
}

/// Waits until both clusters have converged. Replaces gateways that run on the same node.
pub(crate) async fn until_converged(peering: &Peering) -> Result<()> {
    let [rome, milan] = peering.clusters();
    for cluster in [rome, milan] {
        spread(cluster).await?;
    }
    for (here, there) in [(rome, milan), (milan, rome)] {
        let what = format!("{} to converge", here.name());
        until(Deadline::after(SOON), &what, async || {
            is_converged(here, there).await
        })
        .await?;
    }

    Ok(())
}

/// Waits until the gateways are on different nodes. Deletes the pod of a restarted gateway, since
/// the kubelet would delay the next restart of the pod's container.
async fn spread(cluster: &Cluster) -> Result<()> {
    let liqo = liqo(cluster).await?;
    let what = format!("the gateways of {} to be on two nodes", cluster.name());
    until(Deadline::after(SOON), &what, async || {
        liqo.rolled_out("deployment/liqo-gateway").await?;
        let gateways = gateways(cluster).await?;
        ensure!(gateways.len() == GATEWAYS, "{gateways:?}");
        ensure!(gateways.iter().all(|it| !it.is_terminating), "{gateways:?}");
        let nodes: BTreeSet<_> = gateways.iter().map(|it| &it.node).collect();
        let restarted = gateways.iter().find(|it| it.restarts > 0);
        let misplaced = gateways.first().filter(|_| nodes.len() < GATEWAYS);
        if let Some(gateway) = restarted.or(misplaced) {
            liqo.kubectl(&["delete", "pod", &gateway.name, "--wait=false"])
                .await?;
            eprintln!("{}: {gateway:?} is replaced", cluster.name());
            bail!("{} is replaced", gateway.name);
        }
        Ok(())
    })
    .await
}

async fn is_converged(here: &Cluster, there: &Cluster) -> Result<()> {
    let liqo = liqo(here).await?;
    let all = gateways(here).await?;
    let on_nodes: Vec<_> = all.iter().map(|it| it.node.clone()).collect();
    let own: BTreeSet<_> = names(all);
    let others: BTreeSet<_> = names(gateways(there).await?);
    for gateway in &own {
        let status = status(&liqo, gateway, "gateway").await?;
        let peer = peer(&status["engine"]["peers"], there)?;
        let sessions = peer["sessions"].as_array().context("no sessions")?;
        let live: BTreeSet<_> = sessions
            .iter()
            .filter(|it| it["state"] == "live" && it["leaving"] == false)
            .filter_map(|it| Some(it["replica"].as_str()?.to_owned()))
            .collect();
        ensure!(live == others, "{gateway} has live sessions with {live:?}");
    }
    let agents = liqo.pods(AGENT).await?;
    ensure!(agents.len() == here.nodes().len(), "agents: {agents:?}");
    for agent in &agents {
        let status = status(&liqo, agent, "route-agent").await?;
        ensure!(status["converged"] == true, "{agent} has not converged");
        let replicas = status["replicas"].as_array().context("no replicas")?;
        let serving: BTreeSet<_> = replicas
            .iter()
            .filter(|it| it["phase"] == "serving")
            .filter_map(|it| Some(it["name"].as_str()?.to_owned()))
            .collect();
        ensure!(
            serving == own && replicas.len() == own.len(),
            "{agent}: {replicas:?}"
        );
        let peer = peer(&status["peers"], there)?;
        let used = peer["gateways"].as_array().map_or(0, Vec::len);
        // A node prefers the gateways on the node.
        let local = on_nodes.iter().filter(|it| status["node"] == it.as_str());
        let expected = Some(local.count()).filter(|it| *it > 0);
        ensure!(
            used == expected.unwrap_or(own.len()),
            "{agent} uses {used} gateways"
        );
    }

    Ok(())
}

/// Returns the live sessions of each gateway of `here`, which is a client of `there`. Each session
/// is a pair of the remote replica and the replica's address.
async fn live_sessions(here: &Cluster, there: &Cluster) -> Result<Vec<BTreeSet<(String, IpAddr)>>> {
    let liqo = liqo(here).await?;
    let mut all = Vec::new();
    for gateway in gateways(here).await? {
        let status = status(&liqo, &gateway.name, "gateway").await?;
        let peer = peer(&status["engine"]["peers"], there)?;
        let mut live = BTreeSet::new();
        for session in peer["sessions"].as_array().context("no sessions")? {
            if session["state"] == "live" && session["leaving"] == false {
                let endpoint = session["endpoint"].as_str().context("no endpoint")?;
                let replica = session["replica"].as_str().context("no replica")?;
                live.insert((replica.to_owned(), endpoint.parse::<SocketAddr>()?.ip()));
            }
        }
        all.push(live);
    }

    Ok(all)
}

/// Waits until each gateway of the client has sessions with each replica of the server at each of
/// these addresses, and has no session at any other address.
pub(crate) async fn until_discovered_at(peering: &Peering, addresses: &[Ipv4Addr]) -> Result<()> {
    let [rome, milan] = peering.clusters();
    let what = format!("sessions with all replicas at {addresses:?}");
    until(Deadline::after(SOON), &what, async || {
        let replicas = names(gateways(milan).await?);
        let expected: BTreeSet<_> = replicas
            .iter()
            .flat_map(|replica| addresses.iter().map(|it| (replica.clone(), (*it).into())))
            .collect();
        let live = live_sessions(rome, milan).await?;
        ensure!(live.iter().all(|it| *it == expected), "{live:?}");
        Ok(())
    })
    .await
}

/// Returns the output of a program's `status` command in a pod.
pub(crate) async fn status(liqo: &Namespace, pod: &str, program: &str) -> Result<Value> {
    let words = ["exec", pod, "--", program, "status", "-o", "json"];
    let text = liqo.kubectl(&words).await?;

    serde_json::from_str(&text).with_context(|| format!("the status of {pod} is no JSON"))
}

fn peer<'a>(peers: &'a Value, there: &Cluster) -> Result<&'a Value> {
    let peers = peers.as_array().context("no peers")?;
    let peer = peers.iter().find(|it| it["clusterId"] == there.name());

    peer.with_context(|| format!("{} is no peer", there.name()))
}

fn names(gateways: Vec<Gateway>) -> BTreeSet<String> {
    gateways.into_iter().map(|it| it.name).collect()
}
