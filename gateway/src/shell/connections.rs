//! Writes the status of the peers' `Connection`s to the API server.
//!
//! All replicas write the same objects. A connected replica writes `Connected` wherever that is
//! missing; the others write `Error` only when no replica is connected (`value`). A fault beyond the
//! tunnel is withdrawn only by the replica that reported it (`condition`).

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

/// Field manager of the status.
const FIELD_MANAGER: &str = "liqo-gateway";

/// Delay of a retry after a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// Least time between two writes of a peer's condition, which bounds those of replicas that disagree.
const CONDITION_GAP: Duration = Duration::from_secs(1);

/// Concurrent writes.
const WRITES_MAX: usize = 8;

/// Writes the states of engine and path checks to the Connections.
pub(super) struct Reporter {
    client: Client,
    /// This replica's name.
    replica: String,
    /// The names of all ready replicas.
    live: BTreeSet<String>,
    paths: BTreeMap<String, Verdict>,
    /// The last write of each condition: the resourceVersion that it was based on, and its time.
    written_conditions: BTreeMap<String, (String, Instant)>,
    own: BTreeMap<String, Own>,
    served: BTreeSet<String>,
    /// The peers with a Connection that are not served.
    unserved: BTreeSet<String>,
    /// Why peers are not served, as far as that is known.
    causes: BTreeMap<String, String>,
    /// The resourceVersion that the last write of each object was based on. While the watch still has
    /// that version, the object does not show the write.
    written_over: BTreeMap<String, String>,
    writes: JoinSet<Written>,
    /// The peers whose write has not ended.
    under_way: BTreeSet<String>,
    /// The last write failed; only the first of consecutive failures is logged.
    failing: bool,
}

/// The result of a write.
struct Written {
    cluster_id: String,
    outcome: Result<(), kube::Error>,
}

impl Reporter {
    /// Creates one without peers.
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

    /// Notes the engine's state of a peer.
    pub(super) fn note(
        &mut self,
        cluster_id: &str,
        state: ConnectionState,
        latency: Option<Duration>,
    ) {
        // A notice of the engine may be older than the removal of the peer.
        let own = self.own.get_mut(cluster_id);
        if let Some(own) = own.filter(|_| self.served.contains(cluster_id)) {
            own.note(state, latency);
        }
    }

    /// Notes the health of the path to a peer.
    pub(super) fn note_path(&mut self, cluster_id: String, verdict: Verdict) {
        if self.served.contains(&cluster_id) {
            self.paths.insert(cluster_id, verdict);
        }
    }

    /// Sets the names of the ready replicas; the faults that others reported may be replaced.
    pub(super) fn set_live(&mut self, live: impl IntoIterator<Item = String>) {
        self.live = live.into_iter().collect();
    }

    /// Sets the served peers, and why others are not served; forgets former peers.
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

    /// Determines the peers that have a Connection and are not served.
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

    /// Forgets former peers.
    fn forget(&mut self) {
        let is_peer = |id: &String| self.served.contains(id) || self.unserved.contains(id);
        self.own.retain(|id, _| is_peer(id));
        self.paths.retain(|id, _| is_peer(id));
        self.written_conditions.retain(|id, _| is_peer(id));
        self.written_over.retain(|id, _| is_peer(id));
    }

    /// Starts to write the objects whose status differs.
    pub(super) fn write<'a>(&mut self, connections: impl Iterator<Item = &'a Connection>) {
        let connections: Vec<_> = connections.collect();
        self.follow_unserved(&connections);
        for connection in connections {
            let Some(cluster_id) = connection.labels().get(labels::REMOTE_CLUSTER_ID) else {
                continue;
            };
            if self.writes.len() >= WRITES_MAX {
                return; // The rest after one of them has ended.
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
            // Unconditional for a connected replica: it overrides concurrent writes of others.
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

    /// Returns whether the other replicas know this one; they replace conditions of unknown ones.
    fn is_listed(&self) -> bool {
        self.live.contains(&self.replica)
    }

    /// Returns whether a condition may be written: the last one is visible, and is old enough.
    fn may_write_condition(&self, cluster_id: &str, version: &str) -> bool {
        let written = self.written_conditions.get(cluster_id);
        written.is_none_or(|(base, at)| base != version && at.elapsed() >= CONDITION_GAP)
    }

    /// Completes when a write has ended; pending while there is none.
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
            return self.under_way.clear(); // It panicked, and its peer is unknown.
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

/// Merges the changes of the value and of the condition.
fn merged(tunnel: Option<Value>, path: Option<Value>) -> Option<Value> {
    match (tunnel, path) {
        (Some(Value::Object(mut tunnel)), Some(Value::Object(path))) => {
            tunnel.extend(path);
            Some(Value::Object(tunnel))
        }
        (tunnel, path) => tunnel.or(path),
    }
}

/// HTTP status if the object is deleted.
const NOT_FOUND: u16 = 404;

/// HTTP status if another writer has changed the object.
const CONFLICT: u16 = 409;

fn status_code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error {
        Some(status.code)
    } else {
        None
    }
}

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
