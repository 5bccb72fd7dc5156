//! `kubectl top` in the consumer and the provider, both with metrics-server.

use super::{Offloaded, peered, pod};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, serial};
use anyhow::{Context as _, Result, bail, ensure};
use kubernetes_lab::metrics_server;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::ops::RangeInclusive;

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, kubectl_top_shows_offloaded_pods_and_their_node);
}

/// The usage of a pod that computes without a pause, below its limit of 200m. Periods in which a loaded machine does not
/// give it its share reduce the usage.
const BUSY: RangeInclusive<u64> = 50..=250;

/// Computes without a pause, with [`HELD`] MiB in a variable.
const PROGRAM: &str = "held=$(head -c 16777216 /dev/zero | tr '\\0' x); while :; do :; done";

/// The memory of the program, in MiB.
const HELD: u64 = 16;

async fn kubectl_top_shows_offloaded_pods_and_their_node(peering: &'static Peering) -> Result<()> {
    let offloaded = Offloaded::namespace(peered(peering).await?, "top").await?;
    let Offloaded { home, remote, .. } = &offloaded;
    let mut busy = pod("busy", &["sh", "-c", PROGRAM]);
    busy["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "200m"}});
    home.apply(&busy.to_string()).await?;
    home.wait("pod/busy", "Ready").await?;
    for cluster in peering.clusters() {
        metrics_server::install(cluster).await?;
    }

    for namespace in [home, remote] {
        let what = format!("the usage of the pod in {namespace:?}");
        until(Deadline::after(SOON), &what, async || {
            let usage = Usage::of_pod(namespace, "busy").await?;
            ensure!(BUSY.contains(&usage.cpu), "{usage:?}");
            ensure!((HELD..=8 * HELD).contains(&usage.memory), "{usage:?}");
            Ok(())
        })
        .await?;
    }
    for cluster in peering.clusters() {
        for node in cluster.nodes() {
            let namespace = Namespace::existing(cluster, "default").await?;
            Usage::of_node(&namespace, node.name()).await?;
        }
    }

    // The virtual node uses as much as all nodes of the provider. Their samples are not of the same second.
    let what = "the usage of the virtual node";
    until(Deadline::after(SOON), what, async || {
        let mut sum = 0;
        for node in offloaded.milan.nodes() {
            sum += Usage::of_node(remote, node.name()).await?.memory;
        }
        let usage = Usage::of_node(home, MILAN).await?;
        ensure!(usage.cpu >= *BUSY.start(), "{usage:?}");
        ensure!(
            usage.memory.abs_diff(sum) * 4 <= sum,
            "{usage:?}, but the provider's nodes use {sum} MiB"
        );
        Ok(())
    })
    .await?;

    offloaded.end().await
}

/// A usage as `kubectl top` shows it.
#[derive(Debug)]
struct Usage {
    /// In thousandths of a CPU.
    cpu: u64,
    /// In MiB.
    memory: u64,
}

impl Usage {
    async fn of_pod(namespace: &Namespace, name: &str) -> Result<Self> {
        let words = ["top", "pod", name, "--no-headers"];
        let line = namespace.kubectl(&words).await?;
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, cpu, memory] = words[..] else {
            bail!("{line}");
        };

        Self::parse(cpu, memory).with_context(|| line.clone())
    }

    /// Returns the usage of a node, which is not 0.
    async fn of_node(namespace: &Namespace, name: &str) -> Result<Self> {
        let words = ["top", "node", name, "--no-headers"];
        let line = namespace.kubectl(&words).await?;
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, cpu, _, memory, _] = words[..] else {
            bail!("{line}");
        };
        let usage = Self::parse(cpu, memory).with_context(|| line.clone())?;
        ensure!(usage.cpu > 0 && usage.memory > 0, "{line}");

        Ok(usage)
    }

    fn parse(cpu: &str, memory: &str) -> Option<Self> {
        Some(Self {
            cpu: cpu.strip_suffix('m')?.parse().ok()?,
            memory: memory.strip_suffix("Mi")?.parse().ok()?,
        })
    }
}
