//! Writes the status of the `Connection` of each peer to the API server.
//!
//! All replicas of the gateway write the same objects:
//!
//! - The module `value` decides on the field `value`. A connected replica writes `Connected`. The
//!   other replicas write `Error` only when no replica is connected.
//! - The module `condition` decides on the condition `PathHealthy`. In general, only the replica
//!   that reported a fault withdraws it.

mod value;

use super::condition;
use crate::engine::ConnectionState;
use crate::path::{Reason, Verdict};
use control_api::{Connection, labels};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use value::Own;

/// Field manager of all status patches, which shows the writer in `managedFields`.
const FIELD_MANAGER: &str = "liqo-gateway";

/// Delay before a failed write is retried. After a conflict, the retry has no delay.
const RETRY: Duration = Duration::from_secs(5);

/// Minimum time between two writes of a condition.
///
/// Limits the rate of writes if two replicas repeatedly overwrite each other's condition.
const CONDITION_GAP: Duration = Duration::from_secs(1);

/// Maximum number of concurrent writes.
const WRITES_MAX: usize = 8;

/// Writes the connection states of the engine and the results of the path checks to the
/// Connections.
///
/// The key of all maps is the cluster id of the peer.
pub(super) struct Reporter {
    client: Client,
    /// Name of this replica in the EndpointSlice.
    replica: String,
    /// Names of all ready replicas in the EndpointSlice.
    live: BTreeSet<String>,
    paths: BTreeMap<String, Verdict>,
    /// The resourceVersion that the last write of each condition was based on, and the time of the
    /// write.
    written_conditions: BTreeMap<String, (String, Instant)>,
    /// The connection state of each peer, as this replica observes it.
    own: BTreeMap<String, Own>,
    served: BTreeSet<String>,
    /// Peers that have a Connection, but are not served by this cluster's gateways.
    unserved: BTreeSet<String>,
    /// The reason why a peer is not served. Peers without a known reason have no entry.
    causes: BTreeMap<String, String>,
    /// The resourceVersion that the last write of each object was based on. While the watch returns
    /// this version, the watched object does not contain the write yet.
    written_over: BTreeMap<String, String>,
    writes: JoinSet<Written>,
    /// Peers with an unfinished write.
    under_way: BTreeSet<String>,
    /// Whether the last write failed. Only the first of consecutive failures is logged.
    failing: bool,
}

/// The result of a write of one Connection.
struct Written {
    cluster_id: String,
    outcome: Result<(), kube::Error>,
}

impl Reporter {
    /// Creates a reporter without peers.
    pub(super) fn new(client: Client, replica: &str) -> Self {
        Self {
            client,
            replica: replica.to_owned(),
            live: BTreeSet::new(),
            paths: BTreeMap::new(),
            written_conditions: BTreeMap::new(),
            own: BTreeMap::new(),
            served: BTreeSet::new(),
            unserved: BTreeSet::new(),
            causes: BTreeMap::new(),
            written_over: BTreeMap::new(),
            writes: JoinSet::new(),
            under_way: BTreeSet::new(),
            failing: false,
        }
    }

    /// Stores the connection state of a peer, as the engine reported it.
    pub(super) fn note(
        &mut self,
        cluster_id: &str,
        state: ConnectionState,
        latency: Option<Duration>,
    ) {
        // The engine may have sent the state before the peer was removed.
        let own = self.own.get_mut(cluster_id);
        if let Some(own) = own.filter(|_| self.served.contains(cluster_id)) {
            own.note(state, latency);
        }
    }

    /// Stores the health of the path to a peer.
    pub(super) fn note_path(&mut self, cluster_id: String, verdict: Verdict) {
        if self.served.contains(&cluster_id) {
            self.paths.insert(cluster_id, verdict);
        }
    }

    /// Sets the names of the ready replicas. This replica may replace a condition whose reporter is
    /// not among them.
    pub(super) fn set_live(&mut self, live: impl IntoIterator<Item = String>) {
        self.live = live.into_iter().collect();
    }

    /// Sets the served peers, and the known reasons why other peers are not served.
    ///
    /// Discards the state of removed peers.
    pub(super) fn set_peers<'a>(
        &mut self,
        served: impl IntoIterator<Item = &'a str>,
        causes: BTreeMap<String, String>,
    ) {
        self.served = served.into_iter().map(str::to_owned).collect();
        self.causes = causes;
        for cluster_id in &self.served {
            if self.unserved.remove(cluster_id) {
                self.own.remove(cluster_id);
                self.paths.remove(cluster_id);
            }
            let own = self.own.entry(cluster_id.clone());
            own.or_insert_with(Own::new);
        }
        self.forget();
    }

    /// Updates the peers that have a Connection but are not served; sets their path to
    /// [`Reason::NotServed`].
    fn follow_unserved(&mut self, connections: &[&Connection]) {
        let ids = connections
            .iter()
            .filter_map(|connection| connection.labels().get(labels::REMOTE_CLUSTER_ID));
        let ids: BTreeSet<_> = ids
            .filter(|id| !self.served.contains(*id))
            .cloned()
            .collect();
        for id in &ids {
            if !self.unserved.contains(id) {
                self.own.insert(id.clone(), Own::of_unserved());
            }
            let message = self.causes.get(id).map_or_else(
                || {
                    format!(
                        "no gateway of this cluster serves {id}: its Configuration, GatewayServer or \
                         GatewayClient, or PublicKey is missing. `liqoctl network connect` creates them"
                    )
                },
                |cause| format!("no gateway of this cluster serves {id}: {cause}"),
            );
            let reason = Reason::NotServed;
            self.paths.insert(id.clone(), Verdict { reason, message });
        }
        if self.unserved != ids {
            self.unserved = ids;
            self.forget();
        }
    }

    /// Discards the state of all peers that are neither served nor have a Connection.
    fn forget(&mut self) {
        let is_peer = |id: &String| self.served.contains(id) || self.unserved.contains(id);
        self.own.retain(|id, _| is_peer(id));
        self.paths.retain(|id, _| is_peer(id));
        self.written_conditions.retain(|id, _| is_peer(id));
        self.written_over.retain(|id, _| is_peer(id));
    }

    /// Starts the writes of all objects whose status is out of date, up to [`WRITES_MAX`].
    pub(super) fn write<'a>(&mut self, connections: impl Iterator<Item = &'a Connection>) {
        let connections: Vec<_> = connections.collect();
        self.follow_unserved(&connections);
        for connection in connections {
            let Some(cluster_id) = connection.labels().get(labels::REMOTE_CLUSTER_ID) else {
                continue;
            };
            if self.writes.len() >= WRITES_MAX {
                return; // `control` calls `write` again at the end of each write.
            }
            if self.under_way.contains(cluster_id) {
                continue;
            }
            let version = connection.resource_version().unwrap_or_default();
            let is_current = self.written_over.get(cluster_id) != Some(&version);
            if !is_current || connection.meta().deletion_timestamp.is_some() {
                continue;
            }
            let may_write = self.is_listed() && self.may_write_condition(cluster_id, &version);
            let Some(own) = self.own.get_mut(cluster_id) else {
                continue;
            };
            let now = Timestamp::now();
            let is_connected = own.state == ConnectionState::Connected;
            let status = own.status(connection, now, Instant::now());
            let verdict = self.paths.get(cluster_id).filter(|_| may_write);
            let path = verdict.and_then(|verdict| {
                let is_live = |replica: &str| self.live.contains(replica);
                condition::path(verdict, &self.replica, is_live, connection, now)
            });
            if path.is_some() {
                self.written_conditions
                    .insert(cluster_id.clone(), (version.clone(), Instant::now()));
            }
            // A patch with `Connected` and no condition must override concurrent writes of other
            // replicas. All other patches are conditional on the resourceVersion.
            let is_conditional = path.is_some() || !is_connected;
            if let Some(status) = merged(status, path) {
                let mut patch = json!({"status": status});
                if is_conditional && !version.is_empty() {
                    patch["metadata"] = json!({"resourceVersion": version});
                }
                self.under_way.insert(cluster_id.clone());
                self.written_over.insert(cluster_id.clone(), version);
                self.writes
                    .spawn(write(self.client.clone(), connection.clone(), patch));
            }
        }
    }

    /// Returns whether this replica is ready in the desired state.
    ///
    /// Other replicas replace the conditions of a replica that is not ready.
    fn is_listed(&self) -> bool {
        self.live.contains(&self.replica)
    }

    /// Returns whether the condition may be written: the watched object contains the last write,
    /// which is at least [`CONDITION_GAP`] old.
    fn may_write_condition(&self, cluster_id: &str, version: &str) -> bool {
        let written = self.written_conditions.get(cluster_id);
        written.is_none_or(|(base, at)| base != version && at.elapsed() >= CONDITION_GAP)
    }

    /// Completes when a write has ended; stays pending while there are no writes.
    pub(super) async fn written(&mut self) {
        let Some(written) = self.writes.join_next().await else {
            return std::future::pending().await;
        };
        let Ok(Written {
            cluster_id,
            outcome,
        }) = written
        else {
            self.written_conditions.clear();
            self.written_over.clear();
            return self.under_way.clear(); // The task panicked, so its peer is unknown.
        };
        self.under_way.remove(&cluster_id);
        let is_expected = |error: &kube::Error| {
            status_code(error).is_some_and(|code| code == NOT_FOUND || code == CONFLICT)
        };
        let was_failing = std::mem::replace(
            &mut self.failing,
            outcome.as_ref().is_err_and(|error| !is_expected(error)),
        );
        if let Err(error) = outcome {
            if self.failing && !was_failing {
                tracing::warn!(peer = cluster_id, %error, "failed to write the status of the Connection, retrying");
            }
            self.written_conditions.remove(&cluster_id);
            self.written_over.remove(&cluster_id);
            if let Some(own) = self.own.get_mut(&cluster_id) {
                own.is_changed = true;
            }
        }
    }
}

/// Merges the status patches of the value and of the condition.
fn merged(tunnel: Option<Value>, path: Option<Value>) -> Option<Value> {
    match (tunnel, path) {
        (Some(Value::Object(mut tunnel)), Some(Value::Object(path))) => {
            tunnel.extend(path);
            Some(Value::Object(tunnel))
        }
        (tunnel, path) => tunnel.or(path),
    }
}

/// HTTP status of a patch of a deleted object.
const NOT_FOUND: u16 = 404;

/// HTTP status of a patch whose resourceVersion is out of date.
const CONFLICT: u16 = 409;

fn status_code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

/// Patches the status of `connection`; after an error, waits for [`RETRY`] before it returns.
async fn write(client: Client, connection: Connection, patch: Value) -> Written {
    let cluster_id = connection.labels()[labels::REMOTE_CLUSTER_ID].clone();
    let namespace = connection.meta().namespace.clone().unwrap_or_default();
    let api = Api::<Connection>::namespaced(client, &namespace);
    let patch = Patch::Merge(patch);
    let params = PatchParams::apply(FIELD_MANAGER);
    let outcome = api
        .patch_status(&connection.name_any(), &params, &patch)
        .await;
    let is_conflict = |error: &kube::Error| status_code(error) == Some(CONFLICT);
    if outcome.as_ref().is_err_and(|error| !is_conflict(error)) {
        tokio::time::sleep(RETRY).await;
    }

    Written {
        cluster_id,
        outcome: outcome.map(drop),
    }
}

#[cfg(test)]
mod tests;
