//! Tests with many peers: memory, processor time, peering time and idle requests of the controller manager.

mod consumer;
mod provider;
mod usage;

use crate::authentication::site::Site;
use crate::fixture::{Fixture, Suite, serial};
use anyhow::{Result, ensure};
use consumer::Consumer;
use kubernetes_lab::control_plane::Options;
use kubernetes_lab::suite::artifacts;
use provider::Providers;
use std::time::Duration;
use usage::{Idle, megabytes};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_hundred_consumers_cost_no_more_each_than_ten,
        a_hundred_providers_are_idle,
        authentication_without_peers_causes_no_requests,
    );
}

/// Number of peers.
const PEERS: usize = 100;

/// Number of peers that are compared with as many others.
const COMPARED: usize = 10;

/// Limit of the ratio of the last peers to the first ones. "Flat", with room for other processes on the machine.
const GROWTH_MAX: f64 = 2.0;

/// Limit of the memory of the controller manager with many consumers, in MB, which a debug build observes, too.
const MEMORY_MB_MAX: f64 = 60.0;

/// Limit of its memory with as many providers, in MB: each has a connection with its buffers.
const MEMORY_OF_PROVIDERS_MB_MAX: f64 = 80.0;

/// Limit of the idle requests of one peer in a minute, with the 4 of the probe of a provider's API server.
const REQUESTS_PER_MINUTE_MAX: f64 = 6.0;

/// Requests in the window of a measurement that no peer causes: mostly the watches, and the last Events of a peering.
const REQUESTS_OTHER_MAX: f64 = 12.0;

async fn a_hundred_consumers_cost_no_more_each_than_ten(_: &'static Fixture) -> Result<()> {
    let milan = audited("milan").await?;
    let mut times = Vec::new();
    let mut processor = Vec::new();
    for index in 0..PEERS {
        let consumer = Consumer::new(index)?;
        let before = milan.manager().await?.cpu_time()?;
        times.push(consumer.peer(&milan).await?);
        processor.push(milan.manager().await?.cpu_time()?.saturating_sub(before));
    }
    let memory = megabytes(milan.manager().await?.resident_bytes()?);
    let [first, last] = [&times[..COMPARED], &times[PEERS - COMPARED..]].map(median);
    let [first_cpu, last_cpu] =
        [&processor[..COMPARED], &processor[PEERS - COMPARED..]].map(median);
    let idle = Idle::measure(milan.control_plane(), Site::is_manager).await?;
    eprintln!(
        "{PEERS} consumers: {memory:.1} MB; peering time {first:?}, of the last {last:?}; processor time \
         {first_cpu:?}, of the last {last_cpu:?}; {idle}"
    );

    ensure!(memory <= MEMORY_MB_MAX, "{memory:.1} MB");
    let growth = last.as_secs_f64() / first.as_secs_f64();
    ensure!(
        growth <= GROWTH_MAX,
        "the peering time grows by a factor of {growth:.1}"
    );
    let growth = last_cpu.as_secs_f64() / first_cpu.as_secs_f64();
    ensure!(
        growth <= GROWTH_MAX,
        "the processor time grows by a factor of {growth:.1}"
    );
    idle.check(PEERS)
}

async fn a_hundred_providers_are_idle(_: &'static Fixture) -> Result<()> {
    let rome = audited("rome").await?;
    let providers = Providers::start(PEERS).await?;
    let before = megabytes(rome.manager().await?.resident_bytes()?);
    let mut times = Vec::new();
    for index in 0..PEERS {
        times.push(providers.connect(&rome, index).await?);
    }
    let memory = megabytes(rome.manager().await?.resident_bytes()?);
    let [first, last] = [&times[..COMPARED], &times[PEERS - COMPARED..]].map(median);
    let idle = Idle::measure(providers.control_plane(), provider::is_consumer).await?;
    eprintln!(
        "{PEERS} providers: {before:.1} MB, then {memory:.1} MB; replication time {first:?}, of the last {last:?}; \
         at the providers {idle}"
    );

    ensure!(memory <= MEMORY_OF_PROVIDERS_MB_MAX, "{memory:.1} MB");
    let growth = last.as_secs_f64() / first.as_secs_f64();
    ensure!(
        growth <= GROWTH_MAX,
        "the replication time grows by a factor of {growth:.1}"
    );
    idle.check(PEERS)
}

/// Without peers, authentication adds watches and the cluster's key only.
async fn authentication_without_peers_causes_no_requests(_: &'static Fixture) -> Result<()> {
    let milan = audited("milan").await?;
    let idle = Idle::measure(milan.control_plane(), Site::is_manager).await?;
    let memory = megabytes(milan.manager().await?.resident_bytes()?);
    eprintln!("no peer: {memory:.1} MB, {idle}");

    ensure!(memory <= MEMORY_MB_MAX, "{memory:.1} MB");
    idle.check(0)
}

/// Starts a cluster that records its requests.
async fn audited(name: &'static str) -> Result<Site> {
    Site::start_with(name, "turin", &[], Options::new(artifacts()?)).await
}

fn median(durations: &[Duration]) -> Duration {
    let mut sorted = durations.to_vec();
    sorted.sort();
    sorted[sorted.len() / 2]
}
