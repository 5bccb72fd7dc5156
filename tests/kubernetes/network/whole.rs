//! Both clusters as they should be, before something is broken: two gateways on two nodes,
//! each with a session to each of the other cluster's, and all nodes use both.

use crate::fixture::{LIQO, Peering};
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What selects gateways.
pub(crate) const GATEWAY: &str = "networking.liqo.io/component=gateway";

/// What selects route agents.
pub(crate) const AGENT: &str = "app.kubernetes.io/name=fabric";

/// How many gateways a cluster has.
const GATEWAYS: usize = 2;

/// How long it may take: pods may have to be moved.
const PATIENCE: Duration = Duration::from_secs(90);

/// A gateway's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gateway {
    /// Its name.
    pub(crate) name: String,
    /// Its node.
    pub(crate) node: String,
    /// As the kubelet names it on the machine.
    pub(crate) uid: String,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// Whether it is being deleted.
    is_going: bool,
}

/// Liqo's namespace.
pub(crate) async fn liqo(cluster: &Cluster) -> Result<Namespace> {
    Namespace::existing(cluster, LIQO).await
}

/// The gateways of a cluster.
pub(crate) async fn gateways(cluster: &Cluster) -> Result<Vec<Gateway>> {
    let liqo = liqo(cluster).await?;
    let list = liqo.kubectl(&["get", "pods", "-l", GATEWAY, "-o", "json"]);
    let list: Value = serde_json::from_str(&list.await?).context("no list of pods")?;
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
            is_going: pod["metadata"]["deletionTimestamp"].is_string(),
        })
        .collect())
}

/// Waits until both clusters are whole; moves gateways that share a node.
pub(crate) async fn until_whole(peering: &Peering) -> Result<()> {
    let [rome, milan] = peering.clusters();
    for cluster in [rome, milan] {
        spread(cluster).await?;
    }
    for (here, there) in [(rome, milan), (milan, rome)] {
        let what = format!("{} to be whole", here.name());
        until(Deadline::after(PATIENCE), &what, async || {
            is_whole(here, there).await
        })
        .await?;
    }

    Ok(())
}

/// Sees to it that the gateways are on different nodes, and that none was started again:
/// the kubelet lets such a one wait before its next start.
async fn spread(cluster: &Cluster) -> Result<()> {
    let liqo = liqo(cluster).await?;
    let what = format!("the gateways of {} to be on two nodes", cluster.name());
    until(Deadline::after(PATIENCE), &what, async || {
        liqo.rolled_out("deployment/liqo-gateway").await?;
        let gateways = gateways(cluster).await?;
        ensure!(gateways.len() == GATEWAYS, "{gateways:?}");
        ensure!(gateways.iter().all(|it| !it.is_going), "{gateways:?}");
        let nodes: BTreeSet<_> = gateways.iter().map(|it| &it.node).collect();
        let again = gateways.iter().find(|it| it.restarts > 0);
        let misplaced = gateways.first().filter(|_| nodes.len() < GATEWAYS);
        if let Some(gateway) = again.or(misplaced) {
            liqo.kubectl(&["delete", "pod", &gateway.name, "--wait=false"])
                .await?;
            eprintln!("{}: {gateway:?} is replaced", cluster.name());
            bail!("{} is replaced", gateway.name);
        }
        Ok(())
    })
    .await
}

async fn is_whole(here: &Cluster, there: &Cluster) -> Result<()> {
    let liqo = liqo(here).await?;
    let own: BTreeSet<_> = names(gateways(here).await?);
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
        ensure!(used == own.len(), "{agent} uses {used} gateways");
    }

    Ok(())
}

/// For each gateway of `here` that calls those of `there`, whom it meets at which address in
/// sessions that live.
pub(crate) async fn ways(
    here: &Cluster,
    there: &Cluster,
) -> Result<Vec<BTreeSet<(String, IpAddr)>>> {
    let liqo = liqo(here).await?;
    let mut all = Vec::new();
    for gateway in gateways(here).await? {
        let status = status(&liqo, &gateway.name, "gateway").await?;
        let peer = peer(&status["engine"]["peers"], there)?;
        let mut ways = BTreeSet::new();
        for session in peer["sessions"].as_array().context("no sessions")? {
            if session["state"] == "live" && session["leaving"] == false {
                let endpoint = session["endpoint"].as_str().context("no endpoint")?;
                let replica = session["replica"].as_str().context("no replica")?;
                ways.insert((replica.to_owned(), endpoint.parse::<SocketAddr>()?.ip()));
            }
        }
        all.push(ways);
    }

    Ok(all)
}

/// Waits until each gateway of the client meets each of the server's at exactly these addresses.
pub(crate) async fn until_met_at(peering: &Peering, addresses: &[Ipv4Addr]) -> Result<()> {
    let [rome, milan] = peering.clusters();
    let what = format!("all to be met at {addresses:?}");
    until(Deadline::after(PATIENCE), &what, async || {
        let replicas = names(gateways(milan).await?);
        let wanted: BTreeSet<_> = replicas
            .iter()
            .flat_map(|replica| addresses.iter().map(|it| (replica.clone(), (*it).into())))
            .collect();
        let met = ways(rome, milan).await?;
        ensure!(met.iter().all(|ways| *ways == wanted), "{met:?}");
        Ok(())
    })
    .await
}

/// What a process tells about itself.
async fn status(liqo: &Namespace, pod: &str, program: &str) -> Result<Value> {
    let words = ["exec", pod, "--", program, "status", "-o", "json"];
    let text = liqo.kubectl(&words).await?;

    serde_json::from_str(&text).with_context(|| format!("{pod} tells no JSON"))
}

fn peer<'a>(peers: &'a Value, there: &Cluster) -> Result<&'a Value> {
    let peers = peers.as_array().context("no peers")?;
    let peer = peers.iter().find(|it| it["clusterId"] == there.name());

    peer.with_context(|| format!("{} is not served", there.name()))
}

fn names(gateways: Vec<Gateway>) -> BTreeSet<String> {
    gateways.into_iter().map(|it| it.name).collect()
}
