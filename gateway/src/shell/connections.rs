//! Tells the API server how the peers' connections are: the status of their `Connection`s.
//!
//! All replicas see the same peers and write the same objects. One that is connected says so
//! wherever that is not said; one that is not says so when nobody is. What one has found of the way
//! beyond the tunnel it alone takes back.

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

/// Who wrote the status, for the API server's books.
const FIELD_MANAGER: &str = "liqo-gateway";

/// How long after a failed write the next one comes.
const RETRY: Duration = Duration::from_secs(5);

/// The least time between two writes of a peer's path, whatever replicas disagree about.
const SAY_GAP: Duration = Duration::from_secs(1);

/// Most writes under way at once.
const WRITES_MAX: usize = 8;

/// Writes what the engine and the probes tell into the objects.
pub(super) struct Reporter {
    client: Client,
    /// This replica's name, and those of all that are ready.
    replica: String,
    live: BTreeSet<String>,
    paths: BTreeMap<String, Verdict>,
    /// What was last written of a path: the object's version then, which shows less, and when.
    said: BTreeMap<String, (String, Instant)>,
    own: BTreeMap<String, Own>,
    /// The peers that are served, those that have an object and are not, and what is known to be wrong.
    served: BTreeSet<String>,
    unserved: BTreeSet<String>,
    causes: BTreeMap<String, String>,
    /// The version of each object that was last written over; until another one is seen, it does not
    /// show what was written.
    written_over: BTreeMap<String, String>,
    writes: JoinSet<Written>,
    under_way: BTreeSet<String>,
    /// The last write failed; what is the same for all peers is told once.
    failing: bool,
}

/// The peer whose object was written, and how that went.
struct Written {
    cluster_id: String,
    outcome: Result<(), kube::Error>,
}

impl Reporter {
    /// Creates one that knows nothing yet.
    pub(super) fn new(client: Client, replica: &str) -> Self {
        Self {
            client,
            replica: replica.to_owned(),
            live: BTreeSet::new(),
            paths: BTreeMap::new(),
            said: BTreeMap::new(),
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

    /// Notes what the engine tells of a peer.
    pub(super) fn note(
        &mut self,
        cluster_id: &str,
        state: ConnectionState,
        latency: Option<Duration>,
    ) {
        // What the engine told before it knew that it is to serve the peer no more comes late.
        let own = self.own.get_mut(cluster_id);
        if let Some(own) = own.filter(|_| self.served.contains(cluster_id)) {
            own.note(state, latency);
        }
    }

    /// Notes what is found of the way to a peer.
    pub(super) fn note_path(&mut self, cluster_id: String, verdict: Verdict) {
        if self.served.contains(&cluster_id) {
            self.paths.insert(cluster_id, verdict);
        }
    }

    /// Sets the names of the replicas that are ready; what others have found counts no more.
    pub(super) fn set_live(&mut self, live: impl IntoIterator<Item = String>) {
        self.live = live.into_iter().collect();
    }

    /// Sets who is served, and of others what is known to be wrong; forgets all that are none of them.
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

    /// Takes in which peers have an object and are not served.
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
                        "no gateway of this cluster serves {id}: there is no Configuration, GatewayServer \
                         or GatewayClient, and PublicKey of it. `liqoctl network connect` makes them"
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

    /// Forgets the peers that are none any more.
    fn forget(&mut self) {
        let is_peer = |id: &String| self.served.contains(id) || self.unserved.contains(id);
        self.own.retain(|id, _| is_peer(id));
        self.paths.retain(|id, _| is_peer(id));
        self.said.retain(|id, _| is_peer(id));
        self.written_over.retain(|id, _| is_peer(id));
    }

    /// Starts to write what the objects do not say.
    pub(super) fn write<'a>(&mut self, connections: impl Iterator<Item = &'a Connection>) {
        let connections: Vec<_> = connections.collect();
        self.follow_unserved(&connections);
        for connection in connections {
            let Some(cluster_id) = connection.labels().get(labels::REMOTE_CLUSTER_ID) else {
                continue;
            };
            if self.writes.len() >= WRITES_MAX {
                return; // The rest when one of them has ended.
            }
            if self.under_way.contains(cluster_id) {
                continue;
            }
            let version = connection.resource_version().unwrap_or_default();
            let is_seen = self.written_over.get(cluster_id) != Some(&version);
            if !is_seen || connection.meta().deletion_timestamp.is_some() {
                continue;
            }
            let may_say = self.is_listed() && self.may_say(cluster_id, &version);
            let Some(own) = self.own.get_mut(cluster_id) else {
                continue;
            };
            let now = Timestamp::now();
            let is_connected = own.state == ConnectionState::Connected;
            let status = own.status(connection, now, Instant::now());
            let verdict = self.paths.get(cluster_id).filter(|_| may_say);
            let path = verdict.and_then(|verdict| {
                let is_live = |replica: &str| self.live.contains(replica);
                condition::path(verdict, &self.replica, is_live, connection, now)
            });
            if path.is_some() {
                self.said
                    .insert(cluster_id.clone(), (version.clone(), Instant::now()));
            }
            // A replica that is connected wins, whatever others have written meanwhile.
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

    /// Whether the others know of this replica; they contradict one that they do not know.
    fn is_listed(&self) -> bool {
        self.live.contains(&self.replica)
    }

    /// Whether more may be said of a peer's path: not before the last is seen, nor too often.
    fn may_say(&self, cluster_id: &str, version: &str) -> bool {
        let said = self.said.get(cluster_id);
        said.is_none_or(|(seen, at)| seen != version && at.elapsed() >= SAY_GAP)
    }

    /// Completes when a write has ended; never while there is none.
    pub(super) async fn written(&mut self) {
        let Some(written) = self.writes.join_next().await else {
            return std::future::pending().await;
        };
        let Ok(Written {
            cluster_id,
            outcome,
        }) = written
        else {
            self.said.clear();
            self.written_over.clear();
            return self.under_way.clear(); // It panicked: none is known to be under way.
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
                tracing::warn!(peer = cluster_id, %error, "failed to write the Connection's status; it is tried again");
            }
            self.said.remove(&cluster_id);
            self.written_over.remove(&cluster_id);
            if let Some(own) = self.own.get_mut(&cluster_id) {
                own.news = true;
            }
        }
    }
}

/// Joins what is to be written of the tunnel and of the way beyond.
fn merged(tunnel: Option<Value>, path: Option<Value>) -> Option<Value> {
    match (tunnel, path) {
        (Some(Value::Object(mut tunnel)), Some(Value::Object(path))) => {
            tunnel.extend(path);
            Some(Value::Object(tunnel))
        }
        (tunnel, path) => tunnel.or(path),
    }
}

/// What the API server says of an object that is gone.
const NOT_FOUND: u16 = 404;

/// What it says of one that somebody else has written meanwhile.
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
    let is_overtaken = |error: &kube::Error| status_code(error) == Some(CONFLICT);
    if outcome.as_ref().is_err_and(|error| !is_overtaken(error)) {
        tokio::time::sleep(RETRY).await;
    }

    Written {
        cluster_id,
        outcome: outcome.map(drop),
    }
}

#[cfg(test)]
mod tests;
