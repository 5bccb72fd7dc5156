use super::*;
use control_source::{Scope, Watch};
use fake_apiserver::ApiServer;

const PATH: &str =
    "/apis/networking.liqo.io/v1beta1/namespaces/liqo-tenant-milan/connections/gw-milan";

/// Maximum time until all replicas receive a write through their watches.
const DEADLINE: Duration = Duration::from_secs(30);

/// Maximum time for which the object may show `Connected` after all replicas have lost the peer.
const LOST: Duration = Duration::from_secs(10);

/// Interval between two checks of a replica.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_fault_that_has_ended_is_withdrawn() {
    let mut lab = Lab::connected(&["gw-1"]).await;

    for reason in [Reason::EndToEnd, Reason::LocalOverlay, Reason::EndToEnd] {
        lab.note_path(0, reason);
        let is_shown = lab.until(DEADLINE, |it| it.reason == reason.name()).await;
        assert!(is_shown, "{reason:?} was never reported");
    }
}

#[tokio::test]
async fn a_peer_to_which_no_replica_is_connected_is_an_error() {
    let mut lab = Lab::connected(&["gw-1", "gw-2"]).await;

    for replica in [0, 1] {
        lab.note(replica, ConnectionState::Error);
        lab.note_path(replica, Reason::NothingArrives);
    }

    let is_shown = |it: &Shown| it.value == "Error" && it.reason == "NothingArrives";
    assert!(lab.until(LOST, is_shown).await, "{:?}", lab.shown());
    lab.note(1, ConnectionState::Connected);
    lab.note_path(0, Reason::EndToEnd);
    lab.note_path(1, Reason::EndToEnd);
    let is_shown = |it: &Shown| it.value == "Connected" && it.reason == "EndToEnd";
    assert!(lab.until(LOST, is_shown).await, "{:?}", lab.shown());
}

/// Simulates a rolling restart: one replica loses the peer, another starts, the third stays
/// connected.
#[tokio::test]
async fn only_connected_is_shown_while_one_replica_is_connected() {
    let mut lab = Lab::connected(&["gw-1", "gw-2"]).await;
    lab.add("gw-3").await;

    for replica in [0, 1, 0] {
        lab.note(replica, ConnectionState::Error);
        lab.note(1 - replica, ConnectionState::Connected);
        let changed = lab
            .until(Duration::from_secs(5), |it| it.value != "Connected")
            .await;
        assert!(!changed, "{:?}", lab.shown());
        lab.note(replica, ConnectionState::Connected);
        let is_answered = lab.until(DEADLINE, |it| it.is_measured).await;
        assert!(is_answered, "{:?}", lab.shown());
    }
}

#[tokio::test]
async fn a_peer_that_is_no_longer_served_is_reported_with_the_cause() {
    let mut lab = Lab::connected(&["gw-1", "gw-2"]).await;
    lab.note_path(0, Reason::EndToEnd);
    assert!(lab.until(DEADLINE, |it| it.reason == "EndToEnd").await);

    for replica in [0, 1] {
        let why = BTreeMap::from([("milan".to_owned(), "it has no key".to_owned())]);
        lab.reporter(replica).set_peers([], why);
        // The engine may have sent this state before the peer was removed.
        lab.note(replica, ConnectionState::Connected);
        lab.note_path(replica, Reason::EndToEnd);
    }
    let is_shown = |it: &Shown| it.value == "Error" && it.reason == "NotServed";
    assert!(lab.until(LOST, is_shown).await, "{:?}", lab.shown());
    let message = lab.shown().message;
    assert!(
        message.ends_with("serves milan: it has no key"),
        "{message}"
    );

    for replica in [0, 1] {
        lab.reporter(replica).set_peers(["milan"], BTreeMap::new());
    }
    lab.note(0, ConnectionState::Connected);
    lab.note_path(0, Reason::EndToEnd);
    lab.note_path(1, Reason::EndToEnd);
    let is_shown = |it: &Shown| it.value == "Connected" && it.reason == "EndToEnd";
    assert!(lab.until(LOST, is_shown).await, "{:?}", lab.shown());
}

#[tokio::test]
async fn a_name_is_reported_until_it_resolves() {
    let mut lab = Lab::new(&["gw-1"]).await;

    lab.note_path(0, Reason::NameNotResolved);
    let is_shown = |it: &Shown| it.value == "Connecting" && it.reason == "NameNotResolved";
    assert!(lab.until(DEADLINE, is_shown).await, "{:?}", lab.shown());

    lab.note_path(0, Reason::Connecting);
    let is_shown = |it: &Shown| it.reason == "Connecting";
    assert!(lab.until(DEADLINE, is_shown).await, "{:?}", lab.shown());
}

/// A fake API server with the Connection of one peer, and the replicas that write this object.
struct Lab {
    server: ApiServer,
    replicas: Vec<(Reporter, Watch)>,
    names: Vec<String>,
}

/// The fields of the Connection that the tests check.
#[derive(Debug)]
struct Shown {
    value: String,
    is_measured: bool,
    reason: String,
    message: String,
}

impl Lab {
    async fn new(names: &[&str]) -> Self {
        let server = ApiServer::start();
        let labels = json!({labels::REMOTE_CLUSTER_ID: "milan"});
        let metadata =
            json!({"name": "gw-milan", "namespace": "liqo-tenant-milan", "labels": labels});
        let spec = json!({"type": "Server", "gatewayRef": {}});
        server.put(PATH, json!({"metadata": metadata, "spec": spec}));
        let labels = json!({
            labels::REMOTE_CLUSTER_ID: "milan",
            labels::TENANT_NAMESPACE: "true",
        });
        server.put(
            "/api/v1/namespaces/liqo-tenant-milan",
            json!({"metadata": {"name": "liqo-tenant-milan", "labels": labels}}),
        );
        let mut lab = Self {
            server,
            replicas: Vec::new(),
            names: Vec::new(),
        };
        for name in names {
            lab.add(name).await;
        }
        lab
    }

    async fn connected(names: &[&str]) -> Self {
        let mut lab = Self::new(names).await;
        for replica in 0..names.len() {
            lab.note(replica, ConnectionState::Connected);
        }
        assert!(lab.until(DEADLINE, |it| it.value == "Connected").await);
        lab
    }

    async fn add(&mut self, name: &str) {
        let config = kube::Config::new(self.server.url().parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let watch = Watch::with(client.clone(), "liqo", Scope::Gateway);
        let mut watch = watch.expect("the registrations agree");
        watch.wait_until_complete().await;
        watch.resolve();
        let mut reporter = Reporter::new(client, name);
        reporter.set_peers(["milan"], BTreeMap::new());
        self.replicas.push((reporter, watch));
        self.names.push(name.to_owned());
        for (reporter, _) in &mut self.replicas {
            reporter.set_live(self.names.clone());
        }
    }

    fn reporter(&mut self, replica: usize) -> &mut Reporter {
        &mut self.replicas[replica].0
    }

    fn note(&mut self, replica: usize, state: ConnectionState) {
        let latency = Some(Duration::from_millis(3));
        self.reporter(replica).note("milan", state, latency);
    }

    fn note_path(&mut self, replica: usize, reason: Reason) {
        let message = String::new();
        self.reporter(replica)
            .note_path("milan".to_owned(), Verdict { reason, message });
    }

    /// Runs all replicas until the object satisfies `is_so`; returns false after `limit`.
    async fn until(&mut self, limit: Duration, is_so: impl Fn(&Shown) -> bool) -> bool {
        let start = Instant::now();
        while !is_so(&self.shown()) {
            if start.elapsed() >= limit {
                return false;
            }
            for (reporter, watch) in &mut self.replicas {
                let connections = watch.connections();
                reporter.write(connections.iter().map(AsRef::as_ref));
                let event = async {
                    tokio::select! {
                        () = watch.changed() => {}
                        () = reporter.written() => {}
                    }
                };
                // The gateway, too, calls `Reporter::write` periodically.
                let _ = tokio::time::timeout(CHECK_INTERVAL, event).await;
            }
        }
        true
    }

    fn shown(&self) -> Shown {
        let object = self.server.get(PATH).unwrap();
        let status = &object["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Shown {
            value: text(&status["value"]),
            is_measured: status["latency"]["timestamp"].is_string(),
            reason: text(&status["conditions"][0]["reason"]),
            message: text(&status["conditions"][0]["message"]),
        }
    }
}
