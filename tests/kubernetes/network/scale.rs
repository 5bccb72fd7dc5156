//! Tests of the cost of one peering and of fifty: memory, CPU time, API requests, and the time
//! until a change takes effect.

mod cost;
mod requests;
pub(crate) mod usage;

use crate::fixture::{LIQO, Peering, SOON, Suite, Web, remapped, serial};
use crate::foreign::{Foreign, POD, POD_CIDR, Tenant, Unconfigured};
use crate::removal::kubectl;
use anyhow::{Context as _, Result, ensure};
use control_api::Configuration;
use cost::{Cost, Meter};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};
use usage::{Part, megabytes};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        an_idle_peering_uses_little_memory_and_few_requests,
        fifty_peers_are_served_and_a_change_costs_little,
    );
}

/// The maximum resident memory of a process, in bytes.
const MANAGER_BYTES: u64 = 50_000_000;
const GATEWAY_BYTES: u64 = 20_000_000;
const AGENT_BYTES: u64 = 20_000_000;
const METRIC_AGENT_BYTES: u64 = 20_000_000;

/// The maximum resident memory of all Liqo processes of a cluster with one peering and one manager, in
/// bytes, and of a second manager.
const ALL_BYTES: u64 = 92_000_000;
const STANDBY_BYTES: u64 = 17_000_000;

/// The maximum number of API requests per minute of all Liqo processes in an idle cluster with one
/// manager, and those of a second manager.
const IDLE_REQUESTS: u64 = 25;
const STANDBY_REQUESTS: u64 = 10;

/// The Deployment of the managers, and the default number of its replicas.
const MANAGERS: &str = "deployment/liqo-controller-manager";
const REPLICAS: usize = 2;

/// The time for which the requests of an idle cluster are counted.
const IDLE_WINDOW: Duration = Duration::from_secs(60);

/// The number of foreign peers, in addition to the other cluster.
const PEERS: usize = 50;

/// Every tenth peer is a server. All other peers are clients.
const SERVER_EVERY: usize = 10;

/// The indices of the peers that exchange traffic: the first two clients, and the first server.
const WITH_TRAFFIC: [usize; 3] = [0, 1, SERVER_EVERY - 1];

/// The time within which all peers must be connected on a loaded machine.
const ALL_CONNECTED: Duration = Duration::from_secs(180);

/// The maximum cost of one change: CPU time and number of API requests of all processes.
const CHANGE_PROCESSOR: Duration = Duration::from_secs(1);
const CHANGE_REQUESTS: u64 = 60;

/// The time within which a change must take effect, and the time within which a new peer must be
/// connected. A new peer sends its first probe after 2 s, and retries its handshake after 5 s.
const EFFECTIVE: Duration = Duration::from_secs(3);
const CONNECTED: Duration = Duration::from_secs(10);

async fn an_idle_peering_uses_little_memory_and_few_requests(
    peering: &'static Peering,
) -> Result<()> {
    for cluster in peering.clusters() {
        requests::start_counting(cluster).await?;
    }

    let with_two = idle(peering, REPLICAS).await?;
    for cluster in peering.clusters() {
        let shared = cluster.clone();
        let what = format!("managers of {}", cluster.name());
        cleanup::defer(what, async move || scale_managers(&shared, REPLICAS).await);
        scale_managers(cluster, 1).await?;
    }
    let with_one = idle(peering, 1).await?;

    for (one, two) in with_one.iter().zip(with_two) {
        let standby = Idle {
            requests: two.requests.saturating_sub(one.requests),
            bytes: two.bytes.saturating_sub(one.bytes),
        };
        ensure!(one.requests <= IDLE_REQUESTS, "{one:?}");
        ensure!(one.bytes <= ALL_BYTES, "{one:?}");
        ensure!(
            standby.requests <= STANDBY_REQUESTS,
            "a standby: {standby:?}"
        );
        ensure!(standby.bytes <= STANDBY_BYTES, "a standby: {standby:?}");
    }
    Ok(())
}

/// Requests per minute and resident memory of all Liqo processes of an idle cluster.
#[derive(Clone, Copy, Debug)]
struct Idle {
    requests: u64,
    bytes: u64,
}

/// Measures both clusters at the same time.
async fn idle(peering: &Peering, managers: usize) -> Result<Vec<Idle>> {
    let counts = || -> Result<Vec<u64>> {
        let clusters = peering.clusters();
        clusters.into_iter().map(requests::count).collect()
    };
    let before = counts()?;
    let start = Instant::now();
    tokio::time::sleep(IDLE_WINDOW).await;
    let after = counts()?;
    let seconds = start.elapsed().as_secs();

    let mut measured = Vec::new();
    for (cluster, (before, after)) in peering.clusters().into_iter().zip(before.iter().zip(after)) {
        let idle = Idle {
            requests: (after - before) * 60 / seconds,
            bytes: memory(cluster).await?,
        };
        eprintln!(
            "{}, managers: {managers}: {} requests a minute, idle; {:.1} MB in all",
            cluster.name(),
            idle.requests,
            megabytes(idle.bytes)
        );
        measured.push(idle);
    }

    Ok(measured)
}

/// Sets the number of managers, and waits until as many run, one of which holds the Lease.
async fn scale_managers(cluster: &Cluster, count: usize) -> Result<()> {
    let replicas = format!("--replicas={count}");
    kubectl(cluster, &["-n", LIQO, "scale", MANAGERS, &replicas])?;
    let what = format!("{count} managers");
    until(Deadline::after(SOON), &what, async || {
        let mut running = usage::processes(cluster).await?;
        running.retain(|process| process.part == Part::Manager);
        ensure!(running.len() == count, "{running:?}");
        let leases: Api<Lease> = Api::namespaced(cluster.client().await?, LIQO);
        let spec = leases.get("liqo-controller-manager").await?.spec;
        let holder = spec.and_then(|spec| spec.holder_identity);
        let holds = |it: &usage::Process| holder.as_deref() == Some(it.pod.as_str());
        ensure!(running.iter().any(holds), "the Lease is held by {holder:?}");
        Ok(())
    })
    .await
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
            _ => {
                Foreign::client(
                    rome,
                    &id,
                    &json!({"port": 51840, "serviceType": "NodePort"}),
                )
                .await
            }
        };
        peers.push(peer.with_context(|| format!("peer {id}"))?);
    }
    let created = start.elapsed();
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
        "{PEERS} peers: created after {:.1} s, all connected after {:.1} s",
        created.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    for number in WITH_TRAFFIC {
        peers[number].exchanges_traffic(&web).await?;
    }

    requests::start_counting(rome).await?;
    let meter = Meter::start(rome).await?;
    eprintln!("with {PEERS} peers, idle: {}", meter.idle());
    peers.push(added(rome, &meter, &web).await?);
    let newcomer = &peers[PEERS].tenant;
    let wireguard = &peers[PEERS].upstream.wireguard;
    let handshake = wireguard.latest_handshake()?;
    changed(rome, &meter, newcomer).await?;
    ensure!(
        wireguard.latest_handshake()? == handshake,
        "the session was replaced"
    );
    removed(rome, &meter, newcomer).await?;
    memory(rome).await?;
    // Traffic shows that the change did not disturb the other peers.
    for number in WITH_TRAFFIC {
        peers[number].exchanges_traffic(&web).await?;
    }

    Ok(())
}

/// Adds a peer, and checks the cost.
async fn added(cluster: &Cluster, meter: &Meter<'_>, web: &Web) -> Result<Foreign> {
    let unconfigured = Unconfigured::start()?;
    let key = unconfigured.key();
    // The measurement excludes the creation of the namespace.
    let tenant = Tenant::create(cluster, "newcomer").await?;

    let (cost, newcomer) = meter
        .measure(async || {
            tenant.configure(&[POD_CIDR], &["10.70.0.0/16"]).await?;
            let endpoint = json!({"port": 51840, "serviceType": "NodePort"});
            tenant.serve(&json!({"endpoint": endpoint})).await?;
            tenant.publish(&key).await?;
            let (addresses, port) = tenant.endpoint().await?;
            let to = SocketAddrV4::new(addresses[0].parse()?, port);
            let newcomer = unconfigured.become_peer(tenant, Some(to)).await?;
            newcomer.connected().await?;
            newcomer_is_routed(cluster, newcomer.tenant.id()).await?;
            Ok(newcomer)
        })
        .await?;

    eprintln!("a peer added: {cost}");
    newcomer.exchanges_traffic(web).await?;
    check(&cost, CONNECTED)?;
    Ok(newcomer)
}

/// Waits until all nodes have a route to the pod of the new peer.
async fn newcomer_is_routed(cluster: &Cluster, id: &str) -> Result<()> {
    let [a, b, ..] = remapped(cluster, id, POD).await?.octets();
    routes(cluster, &format!("{a}.{b}.0.0/16"), true).await
}

/// Changes the external CIDR of a peer, and checks the cost.
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
    check(&cost, EFFECTIVE)
}

/// Removes a peer, and checks the cost.
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

    eprintln!("a peer removed: {cost}");
    check(&cost, EFFECTIVE)?;
    let api: Api<Configuration> = tenant.api();
    until(
        Deadline::after(SOON),
        "the Configuration to be deleted",
        async || {
            let configuration = api.get_opt(tenant.id()).await?;
            ensure!(configuration.is_none(), "it exists");
            Ok(())
        },
    )
    .await
}

fn check(cost: &Cost, limit: Duration) -> Result<()> {
    ensure!(cost.effective <= limit, "too late: {cost}");
    ensure!(cost.processor() <= CHANGE_PROCESSOR, "{cost}");
    ensure!(cost.requests <= CHANGE_REQUESTS, "{cost}");
    Ok(())
}

/// Returns the remapped external CIDR of a peer.
fn external(configuration: &Configuration) -> Result<String> {
    let status = configuration.status.clone().unwrap_or_default();
    let cidrs = status.remote.context("no status.remote")?.cidr.external;
    cidrs.into_iter().next().context("no external CIDR")
}

/// Waits until all nodes have a route to `prefix`, or until no node has one if `expected` is false.
async fn routes(cluster: &Cluster, prefix: &str, expected: bool) -> Result<()> {
    let what = format!("routes to {prefix} on all nodes: {expected}");
    until(Deadline::after(SOON), &what, async || {
        for node in cluster.nodes() {
            let routes = node.exec("ip", &["route", "show", "table", "27761"])?;
            let found = routes.lines().any(|line| line.starts_with(prefix));
            ensure!(found == expected, "{}: {routes}", node.name());
        }
        Ok(())
    })
    .await
}

/// Asserts that no process exceeds its limit. Returns the resident memory of all processes, in
/// bytes.
async fn memory(cluster: &Cluster) -> Result<u64> {
    let mut all = 0;
    let mut exceeding = Vec::new();
    for process in usage::processes(cluster).await? {
        let memory = process.memory()?;
        eprintln!("{}: {} uses {memory}", cluster.name(), process.pod);
        let limit = match process.part {
            Part::Manager => MANAGER_BYTES,
            Part::Gateway => GATEWAY_BYTES,
            Part::Agent => AGENT_BYTES,
            Part::MetricAgent => METRIC_AGENT_BYTES,
        };
        if memory.resident > limit {
            exceeding.push(format!("{} uses {memory}", process.pod));
        }
        all += memory.resident;
    }
    ensure!(exceeding.is_empty(), "{exceeding:?}");

    Ok(all)
}
