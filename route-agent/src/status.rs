//! The status document, which the agent serves on its status socket.

use crate::cards::Card;
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

/// Maximum age of the reported drop counters. Reading the counters runs `nft`, which is expensive.
const DROPS_AGE_MAX: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// Id of this cluster.
    pub(crate) cluster_id: String,
    /// Name of this node.
    pub(crate) node: String,
    /// The node's address in the external CIDR.
    pub(crate) external_ip: Option<Ipv4Addr>,
    pub(crate) config: Config,
    /// Whether the kernel's state is the desired state.
    pub(crate) converged: bool,
    /// Cause of the last failure to apply the desired state; `None` after a success.
    pub(crate) error: Option<String>,
    /// Number of repairs of kernel state that another program had changed.
    pub(crate) reapplies: u64,
    pub(crate) spread: Spread,
    /// UDP ports at which the kernel joins the gateways' tunnel datagrams.
    #[serde(default)]
    pub(crate) tunnel_ports: Vec<u16>,
    /// The cards that carry traffic between nodes, with the features that they lack.
    #[serde(default)]
    pub(crate) cards: Vec<Card>,
    /// Misconfigurations of this machine that prevent pods' traffic.
    pub(crate) warnings: Vec<String>,
    /// The gateway replicas of this cluster.
    pub(crate) replicas: Vec<Replica>,
    /// The remote clusters.
    pub(crate) peers: Vec<Peer>,
    /// Number of packets that the agent's nft table has dropped, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// Source of the desired state, and validity of the version that the agent has read last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Path of the file, or the text `API server` with the namespace of Liqo.
    pub(crate) source: String,
    /// Whether the version is valid. If `false`, the last valid version stays in force.
    pub(crate) valid: bool,
    /// The reason why the version is invalid; `None` if it is valid.
    pub(crate) error: Option<String>,
    /// Invalid and incomplete objects, which the agent ignores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unserved: Vec<String>,
}

impl Config {
    /// Records that the version is invalid. Returns whether the error differs from the last
    /// recorded error.
    pub(crate) fn note_rejected(&mut self, error: &str) -> bool {
        if self.error.as_deref() == Some(error) {
            return false;
        }
        self.valid = false;
        self.error = Some(error.to_owned());
        true
    }
}

/// The header fields whose hash the kernel uses to select a gateway replica for a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spread {
    /// By source and destination address (sysctl `fib_multipath_hash_policy` 0).
    #[default]
    PerAddressPair,
    /// By addresses and ports (sysctl `fib_multipath_hash_policy` 1 or more).
    PerFlow,
}

/// State of one gateway replica of this cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replica {
    /// Name of the replica's pod.
    pub(crate) name: String,
    /// Address of the replica's pod.
    pub(crate) address: Option<Ipv4Addr>,
    /// Name of the node on which the pod runs.
    pub(crate) node: String,
    /// One of `serving`, `suspect`, `leaving` and `dead`.
    pub(crate) phase: String,
    /// Whether the phase is not `dead`.
    pub(crate) alive: bool,
    /// Round-trip time of the last answered probe.
    pub(crate) rtt_seconds: Option<f64>,
    /// Number of probes sent.
    pub(crate) sent: u64,
    /// Number of probe replies received.
    pub(crate) answered: u64,
    /// Whether the replica has the same list of remote clusters as this node. `None` before the
    /// first reply.
    pub(crate) same_clusters: Option<bool>,
}

/// State of one remote cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Peer {
    pub(crate) cluster_id: String,
    /// The CIDRs of the remote cluster as this cluster sees them, after remapping.
    pub(crate) cidrs: Vec<String>,
    /// Names of the replicas to which packets for the cluster are sent. If the list is empty, the
    /// cluster is unreachable.
    pub(crate) gateways: Vec<String>,
    /// MTU of the cluster's routes in bytes; `None` while the cluster is unreachable.
    pub(crate) mtu_bytes: Option<u32>,
    /// Whether the cluster's nodes reply to this node's echo requests. `None` while the health of
    /// the path is unknown, for example if no reply has ever arrived.
    #[serde(default)]
    pub(crate) path_up: Option<bool>,
}

/// The status document, shared between the agent, the status socket and the metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    status: Mutex<Status>,
    /// Time of the last reading of the drop counters. [`Shared::refresh`] holds the lock while
    /// `nft` runs, so that only one `nft` runs at a time.
    drops_read_at: AsyncMutex<Option<Instant>>,
}

impl Shared {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
    }

    /// Returns a copy of the status with the current value of [`Status::spread`]. The drop counters
    /// are those of the last [`Shared::refresh`].
    pub(crate) fn read(&self) -> Status {
        let mut status = self.lock();
        status.spread = spread();

        status.clone()
    }

    /// Reads the drop counters again if they are older than [`DROPS_AGE_MAX`]. If reading fails,
    /// the status keeps the previous counters.
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

    /// Checks that this node is ready to carry pods' traffic. Otherwise returns the reason.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let status = self.lock();
        match &status.error {
            Some(error) => Err(error.clone()),
            None if !status.converged => Err("not converged yet".to_owned()),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // Each field is valid independently of other fields, so the status is usable after a panic.
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the kernel forwards packets between devices (sysctl `net.ipv4.ip_forward`).
pub(crate) fn forwarding() -> bool {
    sysctl("net/ipv4/ip_forward") == Some(1)
}

fn spread() -> Spread {
    match sysctl("net/ipv4/fib_multipath_hash_policy") {
        Some(1..) => Spread::PerFlow,
        Some(0) | None => Spread::PerAddressPair,
    }
}

/// Reads a sysctl in this thread's network namespace. `name` has slashes instead of dots.
fn sysctl(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests;
