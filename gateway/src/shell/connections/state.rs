//! What this replica knows about its peers, and what it therefore writes to their Connections.

use super::condition;
use super::observed::Observed;
use super::value::{Own, Replicas};
use crate::engine::ConnectionState;
use crate::path::{Reason, Verdict};
use control_runtime::{Env, Outcome};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Minimum time between two writes of a condition.
///
/// Limits the rate of writes if two replicas repeatedly overwrite each other's condition.
pub(super) const CONDITION_GAP: Duration = Duration::from_secs(1);

/// The peers, by cluster ID, as this replica observes them.
///
/// Functions that change it return the cluster IDs of the peers to plan.
#[derive(Debug)]
pub(super) struct State {
    /// Name of this replica in the EndpointSlice.
    replica: String,
    /// Names of all ready replicas in the EndpointSlice.
    live: BTreeSet<String>,
    /// The served peers, and those that have a Connection but are not served.
    peers: BTreeMap<String, Peer>,
    /// The reason why a peer is not served. Peers without a known reason have no entry.
    causes: BTreeMap<String, String>,
    tenant_namespaces: Arc<BTreeMap<String, String>>,
    /// Whether the last write failed. Only the first of consecutive failures is logged.
    is_failing: bool,
}

#[derive(Debug)]
struct Peer {
    /// Whether the gateways of this cluster serve the peer.
    is_served: bool,
    own: Own,
    /// Health of the path to a served peer; `None` before the first check.
    verdict: Option<Verdict>,
    /// Time of the last write of the condition.
    condition_written_at: Option<Instant>,
}

/// The write of one Connection.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// The merge patch; `None` if the object is up to date.
    pub(super) patch: Option<Value>,
    /// Whether the patch is valid for the observed version of the object only.
    pub(super) is_conditional: bool,
    /// When the peer must be planned again although nothing changes.
    pub(super) due: Option<Instant>,
}

impl Peer {
    fn new(is_served: bool, own: Own) -> Self {
        Self {
            is_served,
            own,
            verdict: None,
            condition_written_at: None,
        }
    }
}

impl State {
    /// Creates a state without peers.
    pub(super) fn new(replica: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            live: BTreeSet::new(),
            peers: BTreeMap::new(),
            causes: BTreeMap::new(),
            tenant_namespaces: Arc::default(),
            is_failing: false,
        }
    }

    pub(super) fn note(
        &mut self,
        cluster_id: &str,
        state: ConnectionState,
        latency: Option<Duration>,
    ) -> Option<String> {
        self.served_mut(cluster_id)?.own.note(state, latency);

        Some(cluster_id.to_owned())
    }

    pub(super) fn note_path(&mut self, cluster_id: String, verdict: Verdict) -> Option<String> {
        self.served_mut(&cluster_id)?.verdict = Some(verdict);

        Some(cluster_id)
    }

    /// Returns a served peer. The engine may have sent a state before the peer was removed.
    fn served_mut(&mut self, cluster_id: &str) -> Option<&mut Peer> {
        self.peers.get_mut(cluster_id).filter(|peer| peer.is_served)
    }

    pub(super) fn set_live(&mut self, live: BTreeSet<String>) -> Vec<String> {
        let old = mem::replace(&mut self.live, live);
        if old == self.live {
            return Vec::new();
        }

        self.peers.keys().cloned().collect()
    }

    /// Discards the state of removed peers.
    pub(super) fn set_peers(
        &mut self,
        served: BTreeSet<&str>,
        causes: BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        let mut changed = differing(&self.causes, &causes);
        self.causes = causes;
        let is_current = |id: &str, peer: &Peer| !peer.is_served || served.contains(id);
        let removed = (self.peers).extract_if(.., |id, peer| !is_current(id, peer));
        changed.extend(removed.map(|(id, _)| id));
        for cluster_id in served {
            if self.served_mut(cluster_id).is_none() {
                let peer = Peer::new(true, Own::new());
                self.peers.insert(cluster_id.to_owned(), peer);
                changed.insert(cluster_id.to_owned());
            }
        }

        changed
    }

    pub(super) fn set_tenant_namespaces(
        &mut self,
        namespaces: &Arc<BTreeMap<String, String>>,
    ) -> BTreeSet<String> {
        if Arc::ptr_eq(&self.tenant_namespaces, namespaces) {
            return BTreeSet::new();
        }
        let old = mem::replace(&mut self.tenant_namespaces, Arc::clone(namespaces));

        differing(&old, namespaces)
    }

    /// Returns whether a Connection of a peer in this namespace is the one to write: the status of a
    /// copy elsewhere is not written in place of it.
    pub(super) fn is_tenant_namespace(&self, cluster_id: &str, namespace: &str) -> bool {
        let tenant = self.tenant_namespaces.get(cluster_id);
        tenant.is_some_and(|tenant| tenant == namespace)
    }

    /// Discards the state of a peer without a Connection, unless the peer is served.
    pub(super) fn forget(&mut self, cluster_id: &str) {
        if self.served_mut(cluster_id).is_none() {
            self.peers.remove(cluster_id);
        }
    }

    /// Plans the status of a peer's Connection.
    pub(super) fn plan(
        &mut self,
        cluster_id: &str,
        connection: &Observed,
        env: &Env<'_>,
    ) -> Planned {
        let peer = self.peers.entry(cluster_id.to_owned());
        let peer = peer.or_insert_with(|| Peer::new(false, Own::of_unserved()));
        let replicas = Replicas {
            own: &self.replica,
            live: &self.live,
        };
        let status = &connection.status;
        let status = peer.own.status(status, replicas, env.now, env.at);
        let mut due = peer.own.due();

        let verdict = if peer.is_served {
            peer.verdict.clone()
        } else {
            Some(not_served(cluster_id, self.causes.get(cluster_id)))
        };
        // Other replicas replace the conditions of a replica that is not ready.
        let verdict = verdict.filter(|_| self.live.contains(&self.replica));
        let is_live = |replica: &str| self.live.contains(replica);
        let path = verdict.and_then(|verdict| {
            condition::path(&verdict, &self.replica, is_live, connection, env.now)
        });
        let gap_end = peer.condition_written_at.map(|at| at + CONDITION_GAP);
        let gap_end = gap_end.filter(|end| path.is_some() && *end > env.at);
        let path = path.filter(|_| gap_end.is_none());
        if path.is_some() {
            peer.condition_written_at = Some(env.at);
        }
        due = due.into_iter().chain(gap_end).min();

        // A patch with `Connected` and no condition must override concurrent writes of other
        // replicas. All other patches are conditional on the resourceVersion.
        let is_connected = peer.own.state == ConnectionState::Connected;
        Planned {
            is_conditional: path.is_some() || !is_connected,
            patch: merged(status, path).map(|status| json!({"status": status})),
            due: due.filter(|due| *due > env.at),
        }
    }

    /// Takes the outcome of a write of a peer's Connection.
    pub(super) fn written(&mut self, cluster_id: &str, outcome: &Outcome) {
        let failure = failure(outcome);
        let was_failing = mem::replace(&mut self.is_failing, failure.is_some());
        if let Some(error) = failure.filter(|_| !was_failing) {
            tracing::warn!(
                peer = cluster_id,
                error,
                "failed to write the status of the Connection, retrying"
            );
        }
        let is_stored = matches!(outcome, Outcome::Stored(_));
        if let Some(peer) = self.peers.get_mut(cluster_id).filter(|_| !is_stored) {
            peer.condition_written_at = None;
            peer.own.is_changed = true;
        }
    }
}

/// Returns the verdict on a peer that no gateway of this cluster serves.
fn not_served(cluster_id: &str, cause: Option<&String>) -> Verdict {
    let cause = cause.map_or(
        "its Configuration, GatewayServer or GatewayClient, or PublicKey is missing. \
         `liqoctl network connect` creates them",
        String::as_str,
    );

    Verdict {
        reason: Reason::NotServed,
        message: format!("no gateway of this cluster serves {cluster_id}: {cause}"),
    }
}

/// Returns the keys whose values differ.
fn differing(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> BTreeSet<String> {
    let changed = a.iter().filter(|(key, value)| b.get(*key) != Some(*value));
    let added = b.keys().filter(|key| !a.contains_key(*key));

    changed.map(|(key, _)| key).chain(added).cloned().collect()
}

/// Merges the status patches of the value and of the condition.
fn merged(value: Option<Value>, path: Option<Value>) -> Option<Value> {
    match (value, path) {
        (Some(Value::Object(mut value)), Some(Value::Object(path))) => {
            value.extend(path);
            Some(Value::Object(value))
        }
        (value, path) => value.or(path),
    }
}

/// Returns why a write failed; `None` if it succeeded, or if the object has changed or is gone.
fn failure(outcome: &Outcome) -> Option<&str> {
    match outcome {
        Outcome::Refused(status) => Some(&status.message),
        Outcome::TimedOut => Some("the API server did not answer in time"),
        Outcome::Failed(reason) | Outcome::Untrusted(reason) => Some(reason),
        Outcome::Stored(_)
        | Outcome::Answer(_)
        | Outcome::Gone
        | Outcome::AlreadyExists(_)
        | Outcome::Conflict(_)
        | Outcome::NotLeader => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::connections::value::{DOUBT_AGE, RESTORE_TIMEOUT};
    use control_api::networking::connection::{CONNECTED, ConnectionStatus, Latency};
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    /// Plans the Connection of the peer `milan` at a time.
    fn plan(state: &mut State, connection: &Observed, at: Instant) -> Planned {
        let env = Env {
            now: Timestamp::UNIX_EPOCH,
            at,
            random: &mut || [0; 32],
        };
        state.plan("milan", connection, &env)
    }

    fn connected(measured: Option<Timestamp>) -> Observed {
        Observed {
            status: ConnectionStatus {
                value: Some(CONNECTED.to_owned()),
                latency: measured.map(|at| Latency {
                    timestamp: Some(Time(at)),
                    ..Latency::default()
                }),
                ..ConnectionStatus::default()
            },
            ..Observed::default()
        }
    }

    #[test]
    fn a_peer_is_due_at_the_exact_end_of_each_timeout() {
        let mut state = State::new("gw-1");
        state.set_peers(BTreeSet::from(["milan"]), BTreeMap::new());
        let measured = connected(Some(Timestamp::UNIX_EPOCH));
        let start = Instant::now();

        let planned = plan(&mut state, &measured, start);
        assert_eq!(planned.patch, None);
        assert_eq!(planned.due, Some(start + DOUBT_AGE));

        let doubted = start + DOUBT_AGE;
        let early = doubted - Duration::from_millis(1);
        assert_eq!(plan(&mut state, &measured, early).patch, None);
        let planned = plan(&mut state, &measured, doubted);
        assert!(planned.patch.is_some() && planned.is_conditional);
        assert_eq!(planned.due, None);

        let removed = connected(None);
        let planned = plan(&mut state, &removed, doubted);
        assert_eq!(planned.due, Some(doubted + RESTORE_TIMEOUT));
        let planned = plan(&mut state, &removed, doubted + RESTORE_TIMEOUT);
        assert_eq!(planned.patch.expect("a patch")["status"]["value"], "Error");
    }

    #[test]
    fn only_connected_without_a_condition_overrides_other_replicas() {
        let mut state = State::new("gw-1");
        state.set_peers(BTreeSet::from(["milan"]), BTreeMap::new());
        state.set_live(BTreeSet::from(["gw-1".to_owned()]));
        let connection = Observed::default();
        let now = Instant::now();
        assert!(plan(&mut state, &connection, now).is_conditional);

        state.note("milan", ConnectionState::Connected, None);
        let planned = plan(&mut state, &connection, now);
        assert!(planned.patch.is_some() && !planned.is_conditional);

        let (reason, message) = (Reason::EndToEnd, String::new());
        state.note_path("milan".to_owned(), Verdict { reason, message });
        assert!(plan(&mut state, &connection, now).is_conditional);
    }

    #[test]
    fn the_state_of_an_unserved_peer_ends_with_its_connection() {
        let mut state = State::new("gw-1");
        state.set_peers(BTreeSet::from(["rome"]), BTreeMap::new());
        plan(&mut state, &Observed::default(), Instant::now());
        assert_eq!(state.peers.len(), 2);

        state.forget("milan");
        state.forget("rome");

        assert_eq!(state.peers.keys().collect::<Vec<_>>(), ["rome"]);
    }
}
