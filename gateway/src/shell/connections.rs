//! Tells the API server how the peers' connections are: the status of their `Connection`s.
//!
//! All replicas see the same peers and write the same objects. One that is connected says so
//! wherever that is not said; one that has lost the peer says so once, and a replica that has
//! not contradicts it. What one has found of the way beyond the tunnel it alone takes back.

use super::condition;
use crate::engine::ConnectionState;
use crate::path::Verdict;
use control_api::connection::{CONNECTED, CONNECTING, ERROR};
use control_api::{Connection, labels};
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How old the latency that an object shows may be.
const AGE_MAX: Duration = Duration::from_secs(9);

/// Who wrote the status, for the API server's books.
const FIELD_MANAGER: &str = "liqo-gateway";

/// How long after a failed write the next one comes.
const RETRY: Duration = Duration::from_secs(5);

/// The least time between two writes of a peer's path, whatever replicas disagree about.
const SAY_GAP: Duration = Duration::from_secs(1);

/// Most writes under way at once.
const WRITES_MAX: usize = 8;

/// What this replica knows of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    state: ConnectionState,
    latency: Option<Duration>,
    /// Whether it is news.
    news: bool,
}

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
    writes: JoinSet<Written>,
    under_way: BTreeSet<String>,
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
            writes: JoinSet::new(),
            under_way: BTreeSet::new(),
        }
    }

    /// Notes what the engine tells of a peer.
    pub(super) fn note(
        &mut self,
        cluster_id: &str,
        state: ConnectionState,
        latency: Option<Duration>,
    ) {
        let own = Own {
            state,
            latency,
            news: true,
        };
        self.own.insert(cluster_id.to_owned(), own);
    }

    /// Notes what is found of the way to a peer.
    pub(super) fn note_path(&mut self, cluster_id: String, verdict: Verdict) {
        self.paths.insert(cluster_id, verdict);
    }

    /// Sets the names of the replicas that are ready; what others have found counts no more.
    pub(super) fn set_live(&mut self, live: impl IntoIterator<Item = String>) {
        self.live = live.into_iter().collect();
    }

    /// Forgets the peers that are none any more.
    pub(super) fn retain(&mut self, is_peer: impl Fn(&str) -> bool) {
        self.own.retain(|cluster_id, _| is_peer(cluster_id));
        self.paths.retain(|cluster_id, _| is_peer(cluster_id));
        self.said.retain(|cluster_id, _| is_peer(cluster_id));
    }

    /// Starts to write what the objects do not say.
    pub(super) fn write<'a>(&mut self, connections: impl Iterator<Item = &'a Connection>) {
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
            let may_say = self.is_listed() && self.may_say(cluster_id, &version);
            let Some(own) = self.own.get_mut(cluster_id) else {
                continue;
            };
            let now = Timestamp::now();
            let status = status(own, connection, now);
            // Told now; what the engine tells while this is under way is news again.
            own.news = false;
            let verdict = self.paths.get(cluster_id).filter(|_| may_say);
            let path = verdict.and_then(|verdict| {
                let is_live = |replica: &str| self.live.contains(replica);
                condition::path(verdict, &self.replica, is_live, connection, now)
            });
            if path.is_some() {
                self.said
                    .insert(cluster_id.clone(), (version, Instant::now()));
            }
            if let Some(status) = merged(status, path) {
                self.under_way.insert(cluster_id.clone());
                self.writes
                    .spawn(write(self.client.clone(), connection.clone(), status));
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
            return self.under_way.clear(); // It panicked: none is known to be under way.
        };
        self.under_way.remove(&cluster_id);
        if let Err(error) = outcome {
            tracing::warn!(peer = cluster_id, %error, "failed to write the Connection's status");
            self.said.remove(&cluster_id);
            if let Some(own) = self.own.get_mut(&cluster_id) {
                own.news = true;
            }
        }
    }
}

/// Returns the status that the object should have, if it has another.
fn status(own: &Own, connection: &Connection, now: Timestamp) -> Option<Value> {
    let shown = connection.status.as_ref();
    let value = shown.and_then(|status| status.value.as_deref());
    let latency = shown.and_then(|status| status.latency.as_ref());
    let measured = latency.and_then(|latency| latency.timestamp.as_ref());
    let is_fresh = measured.is_some_and(|at| now.duration_since(at.0).unsigned_abs() < AGE_MAX);

    match own.state {
        ConnectionState::Connected if value == Some(CONNECTED) && (is_fresh || !own.news) => None,
        ConnectionState::Connected => Some(json!({
            "value": CONNECTED,
            "latency": {
                "value": own.latency.map_or_else(|| "N/A".to_owned(), text),
                "timestamp": now.to_string(),
            },
        })),
        ConnectionState::Error if value == Some(ERROR) || !own.news => None,
        ConnectionState::Error => Some(json!({
            "value": ERROR,
            "latency": {"value": "N/A", "timestamp": null},
        })),
        ConnectionState::Connecting => value.is_none().then(|| json!({"value": CONNECTING})),
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

/// As upstream writes it: whole milliseconds, below one whole microseconds with the Greek letter.
fn text(latency: Duration) -> String {
    match latency.as_millis() {
        0 => format!("{}\u{3bc}s", latency.as_micros()),
        millis => format!("{millis}ms"),
    }
}

async fn write(client: Client, connection: Connection, status: Value) -> Written {
    let cluster_id = connection.labels()[labels::REMOTE_CLUSTER_ID].clone();
    let namespace = connection.meta().namespace.clone().unwrap_or_default();
    let api = Api::<Connection>::namespaced(client, &namespace);
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams::apply(FIELD_MANAGER);
    let outcome = api
        .patch_status(&connection.name_any(), &params, &patch)
        .await;
    if outcome.is_err() {
        tokio::time::sleep(RETRY).await;
    }

    Written {
        cluster_id,
        outcome: outcome.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Reason;
    use control_api::connection::{ConnectionSpec, ConnectionStatus, ConnectionType, Latency};
    use control_source::{Scope, Watch};
    use k8s_openapi::api::core::v1::ObjectReference;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use memory_api::ApiServer;

    const NOW: Timestamp = Timestamp::constant(1_000_000, 0);

    /// How long words about one object may take to be seen by all.
    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_fault_that_has_passed_is_taken_back() {
        let server = ApiServer::start();
        let path =
            "/apis/networking.liqo.io/v1beta1/namespaces/liqo-tenant-milan/connections/gw-milan";
        let labels = json!({labels::REMOTE_CLUSTER_ID: "milan"});
        let metadata =
            json!({"name": "gw-milan", "namespace": "liqo-tenant-milan", "labels": labels});
        let spec = json!({"type": "Server", "gatewayRef": {}});
        server.put(path, json!({"metadata": metadata, "spec": spec}));
        let config = kube::Config::new(server.url().parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let mut watch = Watch::with(client.clone(), "liqo", Scope::Gateway);
        watch.wait_until_complete().await;
        let mut reporter = Reporter::new(client, "gw-1");
        reporter.set_live(["gw-1".to_owned()]);
        let latency = Some(Duration::from_millis(3));
        reporter.note("milan", ConnectionState::Connected, latency);

        for reason in [Reason::EndToEnd, Reason::LocalOverlay, Reason::EndToEnd] {
            let message = String::new();
            reporter.note_path("milan".to_owned(), Verdict { reason, message });
            let said = async {
                while shown_reason(&server.get(path).unwrap()) != json!(reason.name()) {
                    reporter.write(watch.store().connections());
                    // The gateway looks once a second, too, whatever is told.
                    let changed = tokio::time::timeout(SAY_GAP, watch.changed());
                    tokio::select! {
                        _ = changed => {}
                        () = reporter.written() => {}
                    }
                }
            };
            let said = tokio::time::timeout(DEADLINE, said).await;
            assert!(said.is_ok(), "{reason:?} was never said");
        }
    }

    fn shown_reason(connection: &Value) -> Value {
        connection["status"]["conditions"][0]["reason"].clone()
    }

    #[test]
    fn a_connected_replica_says_so_wherever_that_is_not_said() {
        let own = own(ConnectionState::Connected, false);

        for value in [None, Some(CONNECTING), Some(ERROR)] {
            let status = status(&own, &shown(value, None), NOW).unwrap();
            assert_eq!(status["value"], CONNECTED);
            assert_eq!(status["latency"]["value"], "3ms");
        }
    }

    #[test]
    fn a_fresh_latency_is_not_written_again() {
        let mut own = own(ConnectionState::Connected, true);

        assert_eq!(status(&own, &shown(Some(CONNECTED), Some(2)), NOW), None);
        assert!(status(&own, &shown(Some(CONNECTED), Some(20)), NOW).is_some());
        own.news = false;
        assert_eq!(status(&own, &shown(Some(CONNECTED), Some(20)), NOW), None);
    }

    #[test]
    fn a_lost_peer_is_told_once() {
        let mut own = own(ConnectionState::Error, true);

        let told = status(&own, &shown(Some(CONNECTED), Some(2)), NOW).unwrap();
        assert_eq!(told["value"], ERROR);
        assert_eq!(told["latency"]["timestamp"], Value::Null);
        own.news = false;
        // Another replica is connected, and has said so.
        assert_eq!(status(&own, &shown(Some(CONNECTED), Some(0)), NOW), None);
    }

    #[test]
    fn a_replica_that_was_never_connected_contradicts_nobody() {
        let own = own(ConnectionState::Connecting, true);

        assert_eq!(status(&own, &shown(Some(CONNECTED), Some(30)), NOW), None);
        assert!(status(&own, &shown(None, None), NOW).is_some());
    }

    #[test]
    fn latencies_are_written_as_upstream_does() {
        assert_eq!(text(Duration::from_micros(870)), "870\u{3bc}s");
        assert_eq!(text(Duration::from_micros(12_900)), "12ms");
    }

    fn own(state: ConnectionState, news: bool) -> Own {
        Own {
            state,
            latency: Some(Duration::from_millis(3)),
            news,
        }
    }

    /// An object that shows `value`, with a latency of so many seconds ago.
    fn shown(value: Option<&str>, seconds_ago: Option<i64>) -> Connection {
        let spec = ConnectionSpec {
            gateway_ref: ObjectReference::default(),
            type_: ConnectionType::Server,
        };
        let mut connection = Connection::new("gw-milan", spec);
        connection.status = Some(ConnectionStatus {
            value: value.map(str::to_owned),
            latency: seconds_ago.map(|ago| Latency {
                timestamp: Some(Time(Timestamp::from_second(NOW.as_second() - ago).unwrap())),
                value: Some("1ms".into()),
            }),
            ..ConnectionStatus::default()
        });
        connection
    }
}
