//! The status document, which the status socket serves.

use crate::kernel::nft;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Mutex as AsyncMutex;

mod table;

pub(crate) use table::print;

/// Maximum age of the reported counters; reading them runs `nft`.
const DROPS_AGE_MAX: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// This cluster.
    pub(crate) cluster_id: String,
    /// This node.
    pub(crate) node: String,
    /// The node's address in the external CIDR.
    pub(crate) external_ip: Option<Ipv4Addr>,
    pub(crate) config: Config,
    /// Whether the kernel's state is the desired one.
    pub(crate) converged: bool,
    /// The failure that prevents convergence.
    pub(crate) error: Option<String>,
    /// Repairs of kernel state that another program had changed.
    pub(crate) reapplies: u64,
    pub(crate) spread: Spread,
    /// Settings of this machine that keep traffic from flowing.
    pub(crate) warnings: Vec<String>,
    /// This cluster's gateway replicas.
    pub(crate) replicas: Vec<Replica>,
    /// The remote clusters.
    pub(crate) peers: Vec<Peer>,
    /// Packets dropped by our nft table, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// The desired state's source and validity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Path of the file, or the cluster.
    pub(crate) source: String,
    /// If `false`, the last valid version stays in force.
    pub(crate) valid: bool,
    /// Why the current version is invalid.
    pub(crate) error: Option<String>,
    /// The parts that are invalid or incomplete, hence not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unserved: Vec<String>,
}

impl Config {
    /// Records that the current version is invalid; returns whether the error is new.
    pub(crate) fn note_rejected(&mut self, error: &str) -> bool {
        if self.error.as_deref() == Some(error) {
            return false;
        }
        self.valid = false;
        self.error = Some(error.to_owned());
        true
    }
}

/// The fields by which the kernel selects a packet's replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spread {
    /// Source and destination address (`fib_multipath_hash_policy` 0).
    #[default]
    PerAddressPair,
    /// Addresses and ports (`fib_multipath_hash_policy` 1).
    PerFlow,
}

/// A gateway replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replica {
    /// Name of the pod.
    pub(crate) name: String,
    /// Address of the pod.
    pub(crate) address: Option<Ipv4Addr>,
    /// Name of its node.
    pub(crate) node: String,
    /// `serving`, `suspect`, `leaving` or `dead`.
    pub(crate) phase: String,
    /// Whether it is not `dead`.
    pub(crate) alive: bool,
    /// Round-trip time of the last probe.
    pub(crate) rtt_seconds: Option<f64>,
    /// Probes sent.
    pub(crate) sent: u64,
    /// Probe replies received.
    pub(crate) answered: u64,
    /// Whether it has the same remote clusters as this node; `None` before the first reply.
    pub(crate) same_clusters: Option<bool>,
}

/// A remote cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Peer {
    pub(crate) cluster_id: String,
    /// Its remapped CIDRs.
    pub(crate) cidrs: Vec<String>,
    /// The replicas that its packets are sent to; if empty, it is unreachable.
    pub(crate) gateways: Vec<String>,
    /// MTU of its routes; `None` while it is unreachable.
    pub(crate) mtu_bytes: Option<u32>,
    /// Whether its nodes reply to this node's echo requests; `None` while that is unknown, for example
    /// if it has never replied.
    #[serde(default)]
    pub(crate) path_up: Option<bool>,
}

/// The status, shared by one writer and any number of readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    status: Mutex<Status>,
    /// When the counters were last read; locked while they are read, so that `nft` runs once at a time.
    drops_read_at: AsyncMutex<Option<Instant>>,
}

impl Shared {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
    }

    /// Returns the status with the current kernel settings, and the counters of the last refresh.
    pub(crate) fn read(&self) -> Status {
        let mut status = self.lock();
        status.spread = spread();

        status.clone()
    }

    /// Reads the counters if the known ones are older than [`DROPS_AGE_MAX`]; after a failure they stay.
    pub(crate) async fn refresh(&self) {
        self.refresh_by(nft::counters(), Instant::now()).await;
    }

    async fn refresh_by<E: Display>(
        &self,
        reading: impl Future<Output = Result<BTreeMap<String, u64>, E>>,
        now: Instant,
    ) {
        let mut read_at = self.0.drops_read_at.lock().await;
        if read_at.is_some_and(|at| now.saturating_duration_since(at) < DROPS_AGE_MAX) {
            return;
        }
        match reading.await {
            Ok(drops) => self.lock().drops = drops,
            Err(error) => tracing::debug!(%error, "failed to read the counters"),
        }
        *read_at = Some(now);
    }

    /// Returns an error with the reason if this node is not ready to carry pods' traffic.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let status = self.lock();
        match &status.error {
            Some(error) => Err(error.clone()),
            None if !status.converged => Err("not converged yet".to_owned()),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // A reader that panicked has not written.
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the kernel forwards packets between devices (`net.ipv4.ip_forward`).
pub(crate) fn forwarding() -> bool {
    sysctl("net/ipv4/ip_forward") == Some(1)
}

fn spread() -> Spread {
    match sysctl("net/ipv4/fib_multipath_hash_policy") {
        Some(1..) => Spread::PerFlow,
        Some(0) | None => Spread::PerAddressPair,
    }
}

/// Reads a sysctl of this thread's network namespace.
fn sysctl(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests;
