//! The state of the gateway, for status socket, metrics and health checks.

use super::desired::Desired;
use super::lane::Report;
use super::lanes::Lanes;
use crate::cipher::Implementation;
use crate::engine::Nodes;
use crate::path::Verdict;
use ebpf::Datapath;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use telemetry::http::Observed;

/// The state of the gateway. `control` writes it; status socket, metrics and health checks read it.
pub(crate) struct State {
    identity: Identity,
    lanes: Lanes,
    datapath: Arc<Mutex<Datapath>>,
    config: Mutex<Config>,
    paths: Mutex<PathStatus>,
}

/// The health of the paths to the peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathStatus {
    /// The health of this cluster's nodes.
    pub(crate) nodes: Nodes,
    /// State of the overlay between this replica and each node, by node name. Nodes with a healthy
    /// overlay have no entry.
    #[serde(rename = "illNodes", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unhealthy_nodes: BTreeMap<String, &'static str>,
    /// The path to each peer, by cluster id.
    pub(crate) clusters: BTreeMap<String, Path>,
}

/// The path from this cluster's nodes to the nodes of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Path {
    /// Whether probes reach the peer's nodes, or its gateways if the peer does not report the
    /// health of its nodes.
    pub(crate) healthy: bool,
    /// Reason in the condition `PathHealthy` of the Connection.
    pub(crate) reason: &'static str,
    /// Cause and remedy, for users.
    pub(crate) message: String,
}

/// The part of the state that does not change while the gateway runs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    /// Name of this gateway, unique on the machine.
    pub(crate) instance: String,
    pub(crate) version: &'static str,
    pub(crate) cluster_id: String,
    pub(crate) replica: String,
    /// The network namespace of TAP and overlay; see
    /// [`Namespace::name`](super::netns::Namespace::name).
    pub(crate) namespace: String,
    /// UDP port of WireGuard.
    pub(crate) listen_port: u16,
    /// Number of lanes (packet loops).
    pub(crate) lanes: u8,
    /// Whether the TAP supports UDP super-packets.
    pub(crate) udp_super_packets: bool,
    /// Implementation of ChaCha20-Poly1305.
    pub(crate) cipher: Implementation,
}

/// The source of the desired state, and whether the gateway has applied it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Path of the file, or name of the API server.
    pub(crate) source: String,
    /// Whether the desired state is valid and applied.
    pub(crate) valid: bool,
    /// Reason why the desired state is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Time at which the last valid state was applied, in seconds since the Unix epoch.
    pub(crate) applied_at: u64,
    /// Number of desired states that the gateway has rejected since its start.
    pub(crate) rejected: u64,
    /// Number of served peers.
    pub(crate) peers: usize,
    /// A line for users about each invalid or incomplete object, which the gateway ignores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unserved: Vec<String>,
}

/// A snapshot of lanes, eBPF counters, configuration and paths.
pub(crate) struct Gathered {
    /// The report of all lanes; `None` if a lane does not reply.
    pub(crate) report: Option<Report>,
    /// The counters of the eBPF programs, by name.
    pub(crate) kernel: BTreeMap<&'static str, u64>,
    pub(crate) config: Config,
    pub(crate) paths: PathStatus,
}

impl State {
    pub(crate) fn new(
        identity: Identity,
        lanes: Lanes,
        datapath: Arc<Mutex<Datapath>>,
        config: Config,
    ) -> Self {
        Self {
            identity,
            lanes,
            datapath,
            config: Mutex::new(config),
            paths: Mutex::default(),
        }
    }

    /// Stores that the desired state `served` was applied.
    pub(crate) fn note_applied(&self, served: &Desired) {
        let mut config = lock(&self.config);
        let rejected = config.rejected;
        let source = std::mem::take(&mut config.source);
        *config = Config {
            rejected,
            ..Config::applied(source, served)
        };
    }

    /// Stores that an invalid desired state was reverted to the applied state.
    pub(crate) fn note_restored(&self) {
        let mut config = lock(&self.config);
        config.valid = true;
        config.error = None;
    }

    /// Stores that the desired state was rejected; returns false if the last error was the same.
    pub(crate) fn note_rejected(&self, error: &str) -> bool {
        let mut config = lock(&self.config);
        if config.error.as_deref() == Some(error) {
            return false;
        }
        config.valid = false;
        config.error = Some(error.to_owned());
        config.rejected += 1;
        true
    }

    /// Stores the health of this cluster's nodes.
    pub(crate) fn note_nodes(&self, nodes: Nodes, unhealthy: BTreeMap<String, &'static str>) {
        let mut paths = lock(&self.paths);
        paths.nodes = nodes;
        paths.unhealthy_nodes = unhealthy;
    }

    /// Stores the health of the path to a peer.
    pub(crate) fn note_path(&self, cluster_id: &str, verdict: &Verdict) {
        let path = Path {
            healthy: verdict.reason.is_healthy(),
            reason: verdict.reason.name(),
            message: verdict.message.clone(),
        };
        lock(&self.paths)
            .clusters
            .insert(cluster_id.to_owned(), path);
    }

    /// Discards the paths to removed peers.
    pub(crate) fn retain_paths(&self, is_peer: impl Fn(&str) -> bool) {
        lock(&self.paths).clusters.retain(|id, _| is_peer(id));
    }

    pub(crate) fn cipher(&self) -> Implementation {
        self.identity.cipher
    }

    pub(crate) fn gather(&self) -> Gathered {
        let kernel = lock(&self.datapath).counters().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to read the kernel programs' counters");
            BTreeMap::new()
        });
        Gathered {
            report: self.lanes.report().ok(),
            kernel,
            config: lock(&self.config).clone(),
            paths: lock(&self.paths).clone(),
        }
    }

    /// Returns the status document.
    pub(crate) fn document(&self) -> Value {
        let Gathered {
            report,
            kernel,
            config,
            paths,
        } = self.gather();
        let mut document = json!({
            "gateway": self.identity,
            "config": config,
            "kernel": kernel,
            "answers": report.is_some(),
            "path": paths,
        });
        if let Some(report) = report {
            document["engine"] = json!(report.engine);
            document["shell"] = json!(report.stats);
            document["ports"] = json!(report.ports);
        }
        document
    }
}

impl Observed for State {
    fn healthy(&self) -> Result<(), String> {
        self.lanes
            .report()
            .map(drop)
            .map_err(|hung| hung.to_string())
    }

    fn ready(&self) -> Result<(), String> {
        let report = self.lanes.report().map_err(|hung| hung.to_string())?;
        // A replica without connections is also ready. A Service forwards packets only to ready
        // replicas, so a peer can connect only after the replica is ready.
        if report.engine.leaving {
            return Err("leaving".into());
        }

        Ok(())
    }
}

impl Config {
    /// Returns the status for the desired state `served`, which the gateway has just applied.
    pub(crate) fn applied(source: String, served: &Desired) -> Self {
        Self {
            source,
            valid: true,
            error: None,
            applied_at: unix_seconds(),
            rejected: 0,
            peers: served.planned.peers.len(),
            unserved: served.unserved.clone(),
        }
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
///
/// The data of all mutexes in the gateway stays consistent after a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}
