//! What status socket, metrics and health checks see of the process.

use super::desired::Desired;
use super::lane::Report;
use super::lanes::Lanes;
use crate::engine::Nodes;
use crate::path::Verdict;
use ebpf::Datapath;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use telemetry::http::Observed;

/// Shared by control, which writes it, and by whoever asks.
pub(crate) struct State {
    identity: Identity,
    lanes: Lanes,
    datapath: Arc<Mutex<Datapath>>,
    config: Mutex<Config>,
    paths: Mutex<PathStatus>,
}

/// The ways to the peers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathStatus {
    /// How our nodes fare.
    pub(crate) nodes: Nodes,
    /// The nodes that this replica and the overlay do not connect, or not yet, and how so.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ill_nodes: BTreeMap<String, &'static str>,
    /// The way to each peer, by cluster id.
    pub(crate) clusters: BTreeMap<String, Path>,
}

/// The way from our nodes to those of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Path {
    /// No part of it is known to be broken.
    pub(crate) healthy: bool,
    /// The part that is broken, or how far the way is known to be whole.
    pub(crate) reason: &'static str,
    /// The same in a sentence, with the cure.
    pub(crate) message: String,
}

/// What never changes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    /// Name of this gateway on the machine.
    pub(crate) instance: String,
    /// Version of this program.
    pub(crate) version: &'static str,
    /// This cluster.
    pub(crate) cluster_id: String,
    /// This replica's name.
    pub(crate) replica: String,
    /// Name of the namespace of TAP and overlay.
    pub(crate) namespace: String,
    /// UDP port of WireGuard.
    pub(crate) listen_port: u16,
    /// How many packet loops it has.
    pub(crate) lanes: u8,
    /// Whether UDP super-packets pass the TAP.
    pub(crate) udp_super_packets: bool,
}

/// The configuration's fate.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Config {
    /// Where the desired state is.
    pub(crate) source: String,
    /// It is what is being served.
    pub(crate) valid: bool,
    /// Why it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// When what is being served was read, in seconds since the Unix epoch.
    pub(crate) applied_at: u64,
    /// Times the desired state was found invalid.
    pub(crate) rejected: u64,
    /// Peers that are served.
    pub(crate) peers: usize,
    /// What is not served, because it is wrong or not complete: a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) unserved: Vec<String>,
}

/// What was gathered at one moment.
pub(crate) struct Gathered {
    /// That of all packet loops, or `None` if one does not answer.
    pub(crate) report: Option<Report>,
    /// The kernel programs' counters.
    pub(crate) kernel: BTreeMap<&'static str, u64>,
    /// The configuration's fate.
    pub(crate) config: Config,
    /// The ways to the peers.
    pub(crate) paths: PathStatus,
}

impl State {
    /// Puts the parts together.
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

    /// Notes what is now served.
    pub(crate) fn note_applied(&self, served: &Desired) {
        let mut config = lock(&self.config);
        let rejected = config.rejected;
        let source = std::mem::take(&mut config.source);
        *config = Config {
            rejected,
            ..Config::applied(source, served)
        };
    }

    /// Notes that what is served is again what is desired.
    pub(crate) fn note_restored(&self) {
        let mut config = lock(&self.config);
        config.valid = true;
        config.error = None;
    }

    /// Notes that the desired state was rejected, and what was served before still is; tells
    /// whether that is news.
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

    /// Notes how our nodes fare.
    pub(crate) fn note_nodes(&self, nodes: Nodes, ill: BTreeMap<String, &'static str>) {
        let mut paths = lock(&self.paths);
        paths.nodes = nodes;
        paths.ill_nodes = ill;
    }

    /// Notes what is found of the way to a peer.
    pub(crate) fn note_path(&self, cluster_id: &str, verdict: &Verdict) {
        let path = Path {
            healthy: verdict.reason.is_well(),
            reason: verdict.reason.name(),
            message: verdict.message.clone(),
        };
        lock(&self.paths)
            .clusters
            .insert(cluster_id.to_owned(), path);
    }

    /// Forgets the ways to those who are no peers any more.
    pub(crate) fn retain_paths(&self, is_peer: impl Fn(&str) -> bool) {
        lock(&self.paths).clusters.retain(|id, _| is_peer(id));
    }

    /// Asks all parts.
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
        // Whether peers are connected is no matter: a Service leads them here only once this
        // replica is ready.
        if report.engine.leaving {
            return Err("leaving".into());
        }

        Ok(())
    }
}

impl Config {
    /// That of a desired state which was just applied.
    pub(crate) fn applied(source: String, served: &Desired) -> Self {
        Self {
            source,
            valid: true,
            error: None,
            applied_at: unix_seconds(),
            rejected: 0,
            peers: served.peers.len(),
            unserved: served.unserved.clone(),
        }
    }
}

/// Locks what no panic can leave half-written.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs()
}
