//! What the agent tells about itself: the document of its status socket.

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

/// How old counters may be that are told: each reading runs `nft`.
const DROPS_AGE_MAX: Duration = Duration::from_millis(500);

/// The document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// This cluster.
    pub(crate) cluster_id: String,
    /// This node.
    pub(crate) node: String,
    /// Its address of the external CIDR.
    pub(crate) external_ip: Option<Ipv4Addr>,
    /// The desired state and whether it counts.
    pub(crate) config: Config,
    /// Whether the kernel's state is the planned one.
    pub(crate) converged: bool,
    /// What keeps it from being so.
    pub(crate) error: Option<String>,
    /// How often something else had changed our kernel state, which was put back.
    pub(crate) reapplies: u64,
    /// How the kernel spreads traffic over replicas.
    pub(crate) spread: Spread,
    /// What is odd about this machine, though nothing has failed.
    pub(crate) warnings: Vec<String>,
    /// This cluster's gateway replicas.
    pub(crate) replicas: Vec<Replica>,
    /// The remote clusters.
    pub(crate) peers: Vec<Peer>,
    /// Packets dropped by our nft table, by reason.
    pub(crate) drops: BTreeMap<String, u64>,
}

/// The fate of the desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Where it is.
    pub(crate) source: String,
    /// Whether it is valid as it is now; if not, the last valid one counts.
    pub(crate) valid: bool,
    /// What is wrong with it.
    pub(crate) error: Option<String>,
    /// What of it is not served, because it is wrong or not complete: a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unserved: Vec<String>,
}

impl Config {
    /// Notes that it is invalid; tells whether that is news.
    pub(crate) fn note_rejected(&mut self, error: &str) -> bool {
        if self.error.as_deref() == Some(error) {
            return false;
        }
        self.valid = false;
        self.error = Some(error.to_owned());
        true
    }
}

/// What decides which replica a packet goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Spread {
    /// Source and destination address (`fib_multipath_hash_policy` 0).
    #[default]
    PerAddressPair,
    /// Addresses and ports (`fib_multipath_hash_policy` 1).
    PerFlow,
}

/// A gateway replica as seen from this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replica {
    /// Name of the pod.
    pub(crate) name: String,
    /// Address of the pod.
    pub(crate) address: Option<Ipv4Addr>,
    /// The node it runs on.
    pub(crate) node: String,
    /// `serving`, `suspect`, `leaving` or `dead`.
    pub(crate) phase: String,
    /// Whether packets may go to it: it is not dead.
    pub(crate) alive: bool,
    /// Round-trip time of its last answer, in seconds.
    pub(crate) rtt_seconds: Option<f64>,
    /// Probes sent to it.
    pub(crate) sent: u64,
    /// Answers from it.
    pub(crate) answered: u64,
    /// Whether its list of remote clusters is this node's.
    pub(crate) same_clusters: Option<bool>,
}

/// A remote cluster as seen from this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Peer {
    /// Its identity.
    pub(crate) cluster_id: String,
    /// The CIDRs under which it is seen here.
    pub(crate) cidrs: Vec<String>,
    /// The replicas its packets go to; none makes it unreachable.
    pub(crate) gateways: Vec<String>,
    /// MTU of its routes, in bytes; `None` while it is unreachable.
    pub(crate) mtu_bytes: Option<u32>,
    /// Whether its nodes answer this one's checks; `None` while that is not known, as of a cluster
    /// that has never answered.
    #[serde(default)]
    pub(crate) path_up: Option<bool>,
}

/// The status as its one writer and its readers share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    status: Mutex<Status>,
    /// When the counters were last read; locked during a reading, so that there is one at a time.
    drops_read_at: AsyncMutex<Option<Instant>>,
}

impl Shared {
    /// Changes the status.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.lock());
    }

    /// Returns the status with kernel settings as they are now, and counters as last refreshed.
    pub(crate) fn read(&self) -> Status {
        let mut status = self.lock();
        status.spread = spread();

        status.clone()
    }

    /// Reads the counters, if those that are known are old; where that fails, they stay.
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

    /// Returns why this node is not ready to carry pods' traffic yet, or `Ok`.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        let status = self.lock();
        match &status.error {
            Some(error) => Err(error.clone()),
            None if !status.converged => Err("not converged yet".to_owned()),
            None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Status> {
        // A reader that panicked has left nothing half written.
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the kernel forwards packets between devices.
pub(crate) fn forwarding() -> bool {
    sysctl("net/ipv4/ip_forward") == Some(1)
}

fn spread() -> Spread {
    match sysctl("net/ipv4/fib_multipath_hash_policy") {
        Some(1..) => Spread::PerFlow,
        Some(0) | None => Spread::PerAddressPair,
    }
}

/// Reads a setting of this thread's network namespace.
fn sysctl(name: &str) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests;
