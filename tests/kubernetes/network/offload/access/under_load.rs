//! Access to offloaded pods while TCP streams load the gateways.

use super::{Client, PODS, commands, files, ports};
use crate::fixture::{Peering, SOON, Suite, serial};
use crate::offload::peered;
use crate::offload::tools::{Offloaded, pod};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::{Namespace, Running};
use kubernetes_lab::wait::{Deadline, until};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        logs_commands_files_and_ports_of_offloaded_pods_under_load,
    );
}

/// The receiver of the load, at the provider.
const SERVER: &str = include_str!("../../manifests/offloaded-load.yaml");

/// Rate of each of [`STREAMS`] TCP streams, in Mbit/s. Two cores also run both clusters.
const RATE: &str = "25M";

const STREAMS: &str = "4";

/// The least mean rate of all streams, in Mbit/s: a tenth of the requested one.
const RATE_MIN: f64 = 10.0;

/// Size of the file that is copied, in bytes.
const FILE_LEN: usize = 5 << 20;

async fn logs_commands_files_and_ports_of_offloaded_pods_under_load(
    peering: &'static Peering,
) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "loaded").await?;
    let home = &offloaded.home;
    home.apply(PODS).await?;
    home.apply(SERVER).await?;
    for pod in ["counter", "source", "server"] {
        home.wait(&format!("pod/{pod}"), "Ready").await?;
    }
    let load = start_load(&offloaded).await?;
    let before = rates(&load).await?.len();

    let mut followed = home.spawn(&["logs", "-f", "counter"])?;
    line_is(&mut followed, 1).await?;
    for client in [Client::WebSocket, Client::Spdy] {
        commands(home, client)?;
    }
    files(home, FILE_LEN).await?;
    ports(home).await?;
    all_lines_are_followed(home, followed).await?;

    let phase = load.get("pod/client", "{.status.phase}").await?;
    ensure!(phase == "Running", "the load has ended: {phase}");
    let rates = rates(&load).await?;
    let rates = rates.get(before..).unwrap_or_default();
    ensure!(!rates.is_empty(), "the load has stalled");
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    eprintln!("{}: {mean:.0} Mbit/s", load.name());
    ensure!(mean >= RATE_MIN, "{mean} Mbit/s: {rates:?}");

    load.kubectl(&["delete", "pod", "client", "--wait"]).await?;
    offloaded.end().await
}

/// Starts a client in the consumer, in a namespace that is not offloaded, and waits until it sends.
async fn start_load(offloaded: &Offloaded) -> Result<Namespace> {
    let address = offloaded.home.get("pod/server", "{.status.podIP}").await?;
    let load = Namespace::create(offloaded.rome, "load").await?;
    let client = ["iperf3", "--client", &address, "--forceflush"];
    let streams = ["--parallel", STREAMS, "--bitrate", RATE];
    // It runs until it is deleted, and prints the rate of each second.
    let forever = ["--time", "0", "--interval", "1", "--format", "m"];
    let client = pod("client", &[&client[..], &streams, &forever].concat());
    load.apply(&client.to_string()).await?;
    load.wait("pod/client", "Ready").await?;
    until(Deadline::after(SOON), "the load", async || {
        let rates = rates(&load).await?;
        ensure!(rates.iter().any(|it| *it >= RATE_MIN), "{rates:?}");
        Ok(())
    })
    .await?;

    Ok(load)
}

/// Returns the rate of all streams in each second so far, in Mbit/s.
async fn rates(load: &Namespace) -> Result<Vec<f64>> {
    let log = load.kubectl(&["logs", "client"]).await?;
    let sums = log.lines().filter(|it| it.starts_with("[SUM]"));
    sums.map(|line| {
        let rate = line.split_once(" Mbits/sec").map(|(before, _)| before);
        let rate = rate.and_then(|it| it.split_whitespace().next_back()?.parse().ok());
        rate.with_context(|| line.to_owned())
    })
    .collect()
}

/// Ends the pod `counter`. Checks that all its lines were followed, and that `kubectl logs -f` ends.
async fn all_lines_are_followed(home: &Namespace, mut followed: Running) -> Result<()> {
    home.sh("counter", "touch /tmp/end").await?;
    home.wait("pod/counter", "jsonpath={.status.phase}=Succeeded")
        .await?;
    let status = followed.ended(SOON).await?;
    ensure!(status.success(), "{status}");
    let last = home.kubectl(&["logs", "--tail=1", "counter"]).await?;
    let last = last.trim().strip_prefix("number ").context(last.clone())?;
    let last: u32 = last.trim_end_matches('.').parse()?;
    for number in 2..=last {
        line_is(&mut followed, number).await?;
    }

    Ok(())
}

/// Checks that the next line is that of a number.
async fn line_is(followed: &mut Running, number: u32) -> Result<()> {
    let line = followed.line_with("number ", SOON).await?;
    ensure!(
        line == format!("number {number}."),
        "{line:?} is not the line of {number}"
    );

    Ok(())
}
