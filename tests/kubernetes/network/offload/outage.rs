//! Endpoints and pods in both clusters while the network between them is lost, and while only the API server of the provider is
//! away.

use super::both_sides::{self, BothSides};
use super::until_node_is_ready;
use super::workload::{Workload, is_ready, promptly};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, serial, until_connections_are};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use kubernetes_lab::cleanup;
use kubernetes_lab::fault::{self, Uplink};
use kubernetes_lab::namespace::{Namespace, Running};
use kubernetes_lab::node::control::{self, Request};
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        endpoints_behind_a_lost_network_are_not_ready_at_once,
        an_api_server_that_is_away_for_three_minutes_changes_nothing,
    );
}

/// The time within which endpoints behind a lost network are not ready.
const NOT_READY: Duration = Duration::from_secs(2);

/// The time for which the API server of the provider is away, as during an upgrade of a managed control plane.
const AWAY: Duration = Duration::from_secs(3 * 60);

/// The program of the API server.
const API_SERVER: &str = "kube-apiserver";

/// Interval of the checks meanwhile.
const INTERVAL: Duration = Duration::from_secs(1);

/// The taint of the virtual node meanwhile.
const TAINT: &str = "virtual-node.liqo.io/api-server-unreachable";

async fn endpoints_behind_a_lost_network_are_not_ready_at_once(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "lost-network").await?;
    let both = BothSides::start(&workload).await?;
    let endpoints = all_endpoints(&workload).await?;
    let mut reflected = both.watch_reflected()?;
    reflected.line_with("true", SOON).await?;
    let uplink = cleanup::defer("the uplink of the provider", async || {
        fault::set_uplink(&peering.milan, &Uplink::Plain)
    });
    fault::set_uplink(&peering.milan, &Uplink::Down)?;
    let start = Instant::now();
    let (of_provider, of_consumer) = tokio::try_join!(
        lost_by_consumer(&workload, endpoints, start),
        lost_by_provider(&mut reflected, start),
    )?;
    eprintln!(
        "not ready after {of_provider:.1?} in the consumer, and after {of_consumer:.1?} at the provider"
    );
    ensure!(
        of_provider <= NOT_READY,
        "in the consumer: {of_provider:?} instead of at most {NOT_READY:?}"
    );
    ensure!(
        of_consumer <= NOT_READY,
        "at the provider: {of_consumer:?} instead of at most {NOT_READY:?}"
    );
    // The remote pods run on.
    until(Deadline::after(SOON), "the pods' condition", async || {
        ensure!(ready_pods(&workload).await? == 0, "pods are ready");
        Ok(())
    })
    .await?;

    uplink.run().await?;
    until_connections_are(peering, "Connected").await?;
    until(Deadline::after(SOON), "ready endpoints", async || {
        let ready = self::endpoints(&workload).await?;
        ensure!(ready == endpoints, "{ready:?} instead of {endpoints:?}");
        Ok(())
    })
    .await?;
    reflected.line_with("true", SOON).await?;
    until_node_is_ready([workload.rome, workload.milan]).await?;
    workload.until_unchanged().await?;
    workload.replies_after_now().await?;
    both.replies_after_now().await?;
    workload.judge(&[]).await?.end().await
}

/// Returns the time until the consumer's endpoints at the provider are not ready, and those in the consumer still are.
async fn lost_by_consumer(
    workload: &Workload,
    before: Endpoints,
    start: Instant,
) -> Result<Duration> {
    promptly("endpoints that are not ready in the consumer", async || {
        let ready = endpoints(workload).await.ok()?;
        let is_lost = ready.web == 0 && ready.both == before.both - before.web;
        is_lost.then(|| start.elapsed())
    })
    .await
}

/// Returns the time until the reflected endpoint is not ready at the provider.
async fn lost_by_provider(reflected: &mut Running, start: Instant) -> Result<Duration> {
    reflected.line_with("false", SOON).await?;

    Ok(start.elapsed())
}

async fn an_api_server_that_is_away_for_three_minutes_changes_nothing(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "api-server-away").await?;
    let both = BothSides::start(&workload).await?;
    all_endpoints(&workload).await?;
    let before = ready(&workload).await?;
    let replies = both.outcomes().await?;
    let node = workload.milan.node(0).name().to_owned();
    let signal = move |program: &str, signal| {
        let request = Request::Signal(program.to_owned(), signal);
        control::send(&node, &request).map(drop)
    };
    let resumed = signal.clone();
    let api_server = cleanup::defer("the provider's API server", async move || {
        resumed(API_SERVER, nix::libc::SIGCONT)
    });
    signal(API_SERVER, nix::libc::SIGSTOP)?;
    // It restarts as well, as it would without its leader's Lease. Otherwise it finds the provider's own nodes to be lost as soon
    // as the API server is back, because they could not send heartbeats.
    signal("kube-controller-manager", nix::libc::SIGKILL)?;
    let start = Instant::now();
    let mut is_tainted = false;
    let mut ticks = tokio::time::interval(INTERVAL);
    while start.elapsed() < AWAY {
        ticks.tick().await;
        let now = ready(&workload).await?;
        ensure!(now == before, "ready endpoints and pods: {now:?}");
        let node = format!("node/{MILAN}");
        let state = "{.status.conditions[?(@.type==\"Ready\")].status}";
        let state = workload.home.get(&node, state).await?;
        ensure!(state == "True", "the virtual node is ready: {state}");
        let taints = workload.home.get(&node, "{.spec.taints[*].key}").await?;
        if !is_tainted && taints.contains(TAINT) {
            is_tainted = true;
            eprintln!("the node was tainted after {:.1?}", start.elapsed());
        }
    }
    ensure!(is_tainted, "the node has no taint {TAINT}");
    workload.replies_after_now().await?;

    api_server.run().await?;
    until(Deadline::after(SOON), "the end of the taint", async || {
        let node = format!("node/{MILAN}");
        let taints = workload.home.get(&node, "{.spec.taints[*].key}").await?;
        ensure!(!taints.contains(TAINT), "{taints}");
        Ok(())
    })
    .await?;
    workload.next_pod("next").await?;
    workload.ready_and_deleted("next").await?;
    workload.until_unchanged().await?;
    workload.ensure_no_request_failed().await?;
    both.ensure_no_request_failed(&replies, AWAY).await?;
    workload.judge(&[]).await?.end().await
}

/// The numbers of endpoints that are ready in the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endpoints {
    /// Those of the Service of the workload, which are at the provider.
    web: usize,
    /// Those of the Service that also has an endpoint in the consumer.
    both: usize,
}

/// Returns the numbers of endpoints and of pods that are ready in the consumer.
async fn ready(workload: &Workload) -> Result<(Endpoints, usize)> {
    tokio::try_join!(endpoints(workload), ready_pods(workload))
}

/// Waits until all pods are ready endpoints in the consumer, and returns the numbers.
async fn all_endpoints(workload: &Workload) -> Result<Endpoints> {
    let [pods, _] = &workload.before;
    let web = pods.len();
    // One pod of the Service is in the consumer.
    let expected = Endpoints { web, both: web + 1 };
    until(
        Deadline::after(SOON),
        "endpoints in both clusters",
        async || {
            let ready = endpoints(workload).await?;
            ensure!(ready == expected, "{ready:?} instead of {expected:?}");
            Ok(ready)
        },
    )
    .await
}

/// Returns the numbers of endpoints that are ready in the consumer.
async fn endpoints(workload: &Workload) -> Result<Endpoints> {
    let (web, both) = tokio::try_join!(
        ready_endpoints(&workload.home, "web"),
        ready_endpoints(&workload.home, both_sides::SERVICE),
    )?;

    Ok(Endpoints { web, both })
}

/// Returns the number of endpoints of a Service that are ready in a namespace.
async fn ready_endpoints(namespace: &Namespace, service: &str) -> Result<usize> {
    let api: Api<EndpointSlice> = Api::namespaced(namespace.client().clone(), namespace.name());
    let selector = format!("kubernetes.io/service-name={service}");
    let slices = api.list(&ListParams::default().labels(&selector)).await?;
    let endpoints = slices.iter().flat_map(|it| it.endpoints.iter().flatten());
    let ready = endpoints.filter(|it| {
        let conditions = it.conditions.as_ref();
        conditions.is_some_and(|it| it.ready == Some(true))
    });

    Ok(ready.count())
}

/// Returns the number of pods of the Service that are ready in the consumer.
async fn ready_pods(workload: &Workload) -> Result<usize> {
    let api: Api<Pod> = Api::namespaced(workload.home.client().clone(), workload.home.name());
    let pods = api.list(&ListParams::default().labels("app=web")).await;
    let pods = pods.context("failed to list the consumer's pods")?;

    Ok(pods.iter().filter(|it| is_ready(it)).count())
}
