//! What one peering, and fifty, cost: memory, processor time, requests, seconds.

mod cost;
mod requests;
mod usage;

use crate::fixture::{Peering, SOON, Suite, Web, seen, serial};
use crate::foreign::{Blank, Foreign, POD, POD_CIDR, Tenant};
use anyhow::{Context as _, Result, ensure};
use control_api::Configuration;
use cost::{Cost, Meter};
use kube::Api;
use kube::api::DeleteParams;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use usage::{Part, megabytes};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        one_idle_peering_takes_little_memory_and_asks_little,
        fifty_peers_are_served_and_a_change_costs_little,
    );
}

/// Bytes that a process may take.
const MANAGER_BYTES: u64 = 50_000_000;
const GATEWAY_BYTES: u64 = 20_000_000;
const AGENT_BYTES: u64 = 20_000_000;

/// Bytes that all of a cluster's may take with one peering.
const ALL_BYTES: u64 = 120_000_000;

/// Requests that all of a cluster's may send in a minute in which nothing changes.
const IDLE_REQUESTS: u64 = 60;

/// How long idle processes are looked at.
const IDLE_WINDOW: Duration = Duration::from_secs(60);

/// How many peers there are, besides the other cluster.
const PEERS: usize = 50;

/// Every so many of them is called, the others call.
const SERVER_EVERY: usize = 10;

/// How many of them pass traffic: the first, and the first that is called.
const TALKERS: [usize; 3] = [0, 1, SERVER_EVERY - 1];

/// How long all of them may take to be connected on a busy machine.
const ALL_CONNECTED: Duration = Duration::from_secs(180);

/// What a change may cost the processes of the control loop together, and all requests.
const CHANGE_PROCESSOR: Duration = Duration::from_secs(1);
const CHANGE_REQUESTS: u64 = 60;

/// How long a change may take to be effective; a new peer's first probe comes after 2 s,
/// a second handshake after 5.
const EFFECTIVE: Duration = Duration::from_secs(3);
const CONNECTED: Duration = Duration::from_secs(10);

async fn one_idle_peering_takes_little_memory_and_asks_little(
    peering: &'static Peering,
) -> Result<()> {
    for cluster in peering.clusters() {
        requests::count_them(cluster).await?;
    }
    let counts = || -> Result<Vec<u64>> {
        let clusters = peering.clusters();
        clusters.into_iter().map(requests::count).collect()
    };
    let before = counts()?;
    let start = Instant::now();
    tokio::time::sleep(IDLE_WINDOW).await;
    let after = counts()?;
    let seconds = start.elapsed().as_secs();

    for (cluster, (before, after)) in peering.clusters().into_iter().zip(before.iter().zip(after)) {
        let per_minute = (after - before) * 60 / seconds;
        eprintln!("{}: {per_minute} requests a minute, idle", cluster.name());
        let all = memory(cluster).await?;
        eprintln!("{}: {:.1} MB in all", cluster.name(), megabytes(all));

        ensure!(per_minute <= IDLE_REQUESTS, "{per_minute} a minute");
        ensure!(all <= ALL_BYTES, "{all} bytes");
    }
    Ok(())
}

async fn fifty_peers_are_served_and_a_change_costs_little(peering: &'static Peering) -> Result<()> {
    let rome = &peering.rome;
    let web = Web::up(rome, "fifty-peers").await?;
    let mut peers = Vec::new();
    let start = Instant::now();
    for number in 0..PEERS {
        let id = format!("scale-{number}");
        let peer = match (number + 1) % SERVER_EVERY {
            0 => Foreign::server(rome, &id).await,
            _ => Foreign::client(rome, &id, &json!({"serviceType": "NodePort"})).await,
        };
        peers.push(peer.with_context(|| format!("peer {id}"))?);
    }
    let told = start.elapsed();
    until(
        Deadline::after(ALL_CONNECTED),
        "all handshakes",
        async || {
            for peer in &peers {
                let id = peer.tenant.id();
                ensure!(peer.upstream.wireguard.latest_handshake()? > 0, "{id}");
            }
            Ok(())
        },
    )
    .await?;
    for peer in &peers {
        peer.connected().await?;
    }
    eprintln!(
        "{PEERS} peers: told after {:.1} s, all connected after {:.1} s",
        told.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    for number in TALKERS {
        peers[number].talks(&web).await?;
    }

    requests::count_them(rome).await?;
    let meter = Meter::start(rome).await?;
    eprintln!("with {PEERS} peers, idle: {}", meter.idle());
    peers.push(added(rome, &meter, &web).await?);
    let newcomer = &peers[PEERS].tenant;
    let wireguard = &peers[PEERS].upstream.wireguard;
    let handshake = wireguard.latest_handshake()?;
    changed(rome, &meter, newcomer).await?;
    ensure!(
        wireguard.latest_handshake()? == handshake,
        "the tunnel went down"
    );
    removed(rome, &meter, newcomer).await?;
    memory(rome).await?;
    // The other peers were not disturbed.
    for number in TALKERS {
        peers[number].talks(&web).await?;
    }

    Ok(())
}

/// One peer more.
async fn added(cluster: &Cluster, meter: &Meter<'_>, web: &Web) -> Result<Foreign> {
    let blank = Blank::start()?;
    let key = blank.key();
    // Its namespace is no part of it: it is there before.
    let tenant = Tenant::create(cluster, "newcomer").await?;

    let (cost, newcomer) = meter
        .measure(async || {
            tenant.configure(&[POD_CIDR], &["10.70.0.0/16"]).await?;
            let endpoint = json!({"serviceType": "NodePort"});
            tenant.serve(&json!({"endpoint": endpoint})).await?;
            tenant.publish(&key).await?;
            let (addresses, port) = tenant.endpoint().await?;
            let to = SocketAddrV4::new(addresses[0].parse()?, port);
            let newcomer = blank.become_peer(tenant, Some(to)).await?;
            newcomer.connected().await?;
            newcomer_is_routed(cluster, newcomer.tenant.id()).await?;
            Ok(newcomer)
        })
        .await?;

    eprintln!("a peer more: {cost}");
    newcomer.talks(web).await?;
    judge(&cost, CONNECTED)?;
    Ok(newcomer)
}

/// Waits until all nodes know the way to its pod.
async fn newcomer_is_routed(cluster: &Cluster, id: &str) -> Result<()> {
    let seen = seen(cluster, id, POD).await?;
    let [a, b, ..] = seen.octets();
    routes(cluster, &format!("{a}.{b}.0.0/16"), true).await
}

/// A peer's external CIDR becomes another one.
async fn changed(cluster: &Cluster, meter: &Meter<'_>, tenant: &Tenant) -> Result<()> {
    let before = external(&tenant.configured().await?)?;

    let (cost, after) = meter
        .measure(async || {
            tenant.configure(&[POD_CIDR], &["10.72.0.0/15"]).await?;
            let after = external(&tenant.configured().await?)?;
            ensure!(after != before, "{after}");
            routes(cluster, &after, true).await?;
            routes(cluster, &before, false).await?;
            Ok(after)
        })
        .await?;

    eprintln!("a peer changed ({before} became {after}): {cost}");
    judge(&cost, EFFECTIVE)
}

/// One peer less.
async fn removed(cluster: &Cluster, meter: &Meter<'_>, tenant: &Tenant) -> Result<()> {
    let configuration = tenant.configured().await?;
    let external = external(&configuration)?;
    let kinds = "configurations,gatewayservers,publickeies";

    let (cost, ()) = meter
        .measure(async || {
            let words = ["delete", kinds, "--all", "--wait=false"];
            tenant.namespace().kubectl(&words).await?;
            routes(cluster, &external, false).await
        })
        .await?;

    eprintln!("a peer less: {cost}");
    judge(&cost, EFFECTIVE)?;
    let api: Api<Configuration> = tenant.api();
    // It may be there: what is measured is when it has no effect any more.
    let _ = api.delete(tenant.id(), &DeleteParams::default()).await;
    Ok(())
}

fn judge(cost: &Cost, limit: Duration) -> Result<()> {
    ensure!(cost.effective <= limit, "effective late: {cost}");
    ensure!(cost.processor() <= CHANGE_PROCESSOR, "{cost}");
    ensure!(cost.requests <= CHANGE_REQUESTS, "{cost}");
    Ok(())
}

/// How an external CIDR is seen.
fn external(configuration: &Configuration) -> Result<String> {
    let status = configuration.status.clone().unwrap_or_default();
    let cidrs = status.remote.context("no status.remote")?.cidr.external;
    cidrs.into_iter().next().context("no external CIDR")
}

/// Waits until all nodes have routes to a prefix, or none.
async fn routes(cluster: &Cluster, prefix: &str, wanted: bool) -> Result<()> {
    let what = format!("routes to {prefix} on all nodes: {wanted}");
    until(Deadline::after(SOON), &what, async || {
        for node in cluster.nodes() {
            let routes = node.exec("ip", &["route", "show", "table", "27761"])?;
            let found = routes.lines().any(|line| line.starts_with(prefix));
            ensure!(found == wanted, "{}: {routes}", node.name());
        }
        Ok(())
    })
    .await
}

/// Asserts that no process takes more than it may; returns what all take.
async fn memory(cluster: &Cluster) -> Result<u64> {
    let mut all = 0;
    let mut refused = Vec::new();
    for process in usage::processes(cluster).await? {
        let memory = process.memory()?;
        eprintln!("{}: {} takes {memory}", cluster.name(), process.pod);
        let limit = match process.part {
            Part::Manager => MANAGER_BYTES,
            Part::Gateway => GATEWAY_BYTES,
            Part::Agent => AGENT_BYTES,
        };
        if memory.resident > limit {
            refused.push(format!("{} takes {memory}", process.pod));
        }
        all += memory.resident;
    }
    ensure!(refused.is_empty(), "{refused:?}");

    Ok(all)
}
