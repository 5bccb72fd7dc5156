//! The replicas of a gateway under virtual time, in the order of several seeds.

use super::*;
use crate::path::Reason;
use control_runtime::Key;
use control_runtime::simulation::Simulation;
use serde_json::{Value, json};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

mod chart;
mod process;

/// Orders of events that each test tries.
const SEEDS: u64 = 20;

/// Time in which a change takes effect if no timer delays it. Each step of the simulation takes 1 ms.
const SOON: Duration = Duration::from_millis(100);

/// Time between two latencies that an engine measures.
const MEASURED_EVERY: Duration = Duration::from_secs(10);

#[test]
fn a_fault_that_has_ended_is_withdrawn_after_the_shortest_time_between_two_writes() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 1);
        lab.note_path(0, Reason::EndToEnd);
        lab.pass(SOON);
        assert_eq!(lab.shown().reason, "EndToEnd");

        for (old, new) in [
            (Reason::EndToEnd, Reason::LocalOverlay),
            (Reason::LocalOverlay, Reason::EndToEnd),
        ] {
            lab.note_path(0, new);
            lab.pass(state::CONDITION_GAP - 2 * SOON);
            assert_eq!(lab.shown().reason, old.name());
            lab.pass(2 * SOON);
            assert_eq!(lab.shown().reason, new.name());
        }
    }
}

#[test]
fn a_peer_to_which_no_replica_is_connected_is_an_error_at_once() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);

        lab.note(0, ConnectionState::Error);
        lab.note_path(0, Reason::NothingArrives);
        lab.pass(SOON);
        assert_eq!(lab.shown().value, "Connected");
        lab.note(1, ConnectionState::Error);
        lab.note_path(1, Reason::NothingArrives);
        lab.pass(SOON);
        assert_eq!(lab.shown().value, "Error");
        lab.pass(state::CONDITION_GAP);
        assert_eq!(lab.shown().reason, "NothingArrives");

        lab.note(1, ConnectionState::Connected);
        lab.note_path(0, Reason::EndToEnd);
        lab.note_path(1, Reason::EndToEnd);
        lab.pass(state::CONDITION_GAP + SOON);
        assert_eq!(lab.shown().value, "Connected");
        assert_eq!(lab.shown().reason, "EndToEnd");
    }
}

#[test]
fn a_replica_that_dies_connected_is_noticed_by_the_age_of_its_latency() {
    for seed in 0..SEEDS {
        let mut lab = Lab::new(seed, 2);
        lab.note(0, ConnectionState::Connected);
        lab.pass(SOON);
        assert!(lab.shown().is_measured);

        // The new process serves no peer yet.
        lab.simulation.crash(0);

        lab.pass(value::DOUBT_AGE - 2 * SOON);
        assert!(lab.shown().is_measured);
        lab.pass(2 * SOON);
        assert!(!lab.shown().is_measured);
        lab.pass(value::RESTORE_TIMEOUT - 2 * SOON);
        assert_eq!(lab.shown().value, "Connected");
        lab.pass(2 * SOON);
        assert_eq!(lab.shown().value, "Error");
    }
}

/// Simulates a rolling restart: one replica loses the peer, another starts, the third stays
/// connected.
#[test]
fn error_is_never_written_while_one_replica_is_connected() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);

        for replica in [0, 1, 0] {
            lab.note(replica, ConnectionState::Error);
            lab.pass(SOON);
            lab.restart(replica);
            for _ in 0..4 {
                lab.note(1 - replica, ConnectionState::Connected);
                lab.pass(MEASURED_EVERY);
            }
            assert!(lab.shown().is_measured);
            lab.note(replica, ConnectionState::Connected);
            lab.pass(SOON);
        }

        assert_eq!(lab.shown().value, "Connected");
        assert!(lab.written().all(|status| status["value"] != "Error"));
    }
}

#[test]
fn replicas_that_lose_the_peer_at_once_plan_again_after_a_conflict() {
    let mut conflicts = 0;
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 3);

        for replica in 0..3 {
            lab.note(replica, ConnectionState::Error);
        }

        lab.pass(value::RESTORE_TIMEOUT + 10 * SOON);
        assert_eq!(lab.shown().value, "Error");
        let log = lab.simulation.log().iter();
        conflicts += log.filter(|sent| !sent.is_success).count();
    }
    assert!(conflicts > 0, "no order of events causes a conflict");
}

#[test]
fn the_state_is_written_when_the_api_server_is_reachable_again() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 1);
        lab.simulation.partition(&Cluster::Local);
        lab.note(0, ConnectionState::Error);
        lab.note_path(0, Reason::NoAnswer);
        lab.pass(Duration::from_secs(120));
        assert_eq!(lab.shown().value, "Connected");

        lab.simulation.heal(&Cluster::Local);

        lab.pass(Duration::from_secs(120));
        let shown = lab.shown();
        assert_eq!((&*shown.value, &*shown.reason), ("Error", "NoAnswer"));
    }
}

#[test]
fn a_peer_that_was_never_connected_is_an_error_although_the_first_write_fails() {
    for seed in 0..SEEDS {
        let mut lab = Lab::new(seed, 1);
        lab.pass(SOON);
        assert_eq!(lab.shown().value, "Connecting");
        lab.simulation.partition(&Cluster::Local);
        lab.note(0, ConnectionState::Error);
        lab.pass(Duration::from_secs(60));

        lab.simulation.heal(&Cluster::Local);

        lab.pass(Duration::from_secs(60));
        assert_eq!(lab.shown().value, "Error");
    }
}

#[test]
fn a_condition_that_meets_a_conflict_does_not_wait_for_the_next_one() {
    let mut conflicts = 0;
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);
        lab.pass(MEASURED_EVERY);

        lab.note_path(0, Reason::LocalOverlay);
        lab.note(1, ConnectionState::Connected);

        lab.pass(5 * SOON);
        assert_eq!(lab.shown().reason, "LocalOverlay", "seed {seed}");
        let log = lab.simulation.log().iter();
        conflicts += log.filter(|sent| !sent.is_success).count();
    }
    assert!(conflicts > 0, "no order of events causes a conflict");
}

#[test]
fn a_replica_that_is_not_ready_writes_no_condition() {
    let mut lab = Lab::connected(1, 2);
    lab.reporter(0).set_live(["gw-2".to_owned()]);
    lab.note_path(0, Reason::EndToEnd);
    lab.pass(10 * SOON);
    assert_eq!(lab.shown().reason, "");

    let both = ["gw-1".to_owned(), "gw-2".to_owned()];
    lab.reporter(0).set_live(both);

    lab.pass(SOON);
    assert_eq!(lab.shown().reason, "EndToEnd");
}

#[test]
fn a_connection_that_is_created_again_is_written_again() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);
        lab.note_path(0, Reason::EndToEnd);
        lab.pass(SOON);

        lab.simulation.local().remove::<Connection>(&key(TENANT));
        // The state of the engine arrives while there is no object, or after it is there again.
        lab.note(0, ConnectionState::Connected);
        lab.pass(SOON);
        lab.put(TENANT);

        lab.pass(state::CONDITION_GAP + SOON);
        let shown = lab.shown();
        assert_eq!(
            (&*shown.value, &*shown.reason),
            ("Connected", "EndToEnd"),
            "seed {seed}"
        );
    }
}

#[test]
fn a_peer_that_is_no_longer_served_is_reported_with_the_cause() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);
        lab.note_path(0, Reason::EndToEnd);
        lab.pass(SOON);
        assert_eq!(lab.shown().reason, "EndToEnd");

        for replica in [0, 1] {
            let why = BTreeMap::from([("milan".to_owned(), "it has no key".to_owned())]);
            lab.reporter(replica).set_peers([], why);
            // The engine may have sent this state before the peer was removed.
            lab.note(replica, ConnectionState::Connected);
            lab.note_path(replica, Reason::EndToEnd);
        }
        lab.pass(value::RESTORE_TIMEOUT + 10 * SOON);
        let shown = lab.shown();
        assert_eq!((&*shown.value, &*shown.reason), ("Error", "NotServed"));
        let message = shown.message;
        assert!(
            message.ends_with("serves milan: it has no key"),
            "{message}"
        );

        // Another cause is reported without any other change.
        for replica in [0, 1] {
            lab.reporter(replica).set_peers([], BTreeMap::new());
        }
        lab.pass(state::CONDITION_GAP);
        assert!(lab.shown().message.contains("`liqoctl network connect`"));

        for replica in [0, 1] {
            lab.reporter(replica).set_peers(["milan"], BTreeMap::new());
        }
        lab.note(0, ConnectionState::Connected);
        lab.note_path(0, Reason::EndToEnd);
        lab.note_path(1, Reason::EndToEnd);
        lab.pass(state::CONDITION_GAP + SOON);
        let shown = lab.shown();
        assert_eq!((&*shown.value, &*shown.reason), ("Connected", "EndToEnd"));
    }
}

#[test]
fn a_name_is_reported_until_it_resolves() {
    for seed in 0..SEEDS {
        let mut lab = Lab::new(seed, 1);

        lab.note_path(0, Reason::NameNotResolved);
        lab.pass(SOON);
        let shown = lab.shown();
        assert_eq!(
            (&*shown.value, &*shown.reason),
            ("Connecting", "NameNotResolved")
        );

        lab.note_path(0, Reason::Connecting);
        lab.pass(state::CONDITION_GAP);
        assert_eq!(lab.shown().reason, "Connecting");
    }
}

#[test]
fn the_condition_of_a_replica_that_is_gone_is_replaced() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);
        lab.note_path(0, Reason::LocalOverlay);
        lab.pass(SOON);
        lab.note_path(1, Reason::EndToEnd);
        lab.pass(10 * SOON);
        assert_eq!(lab.shown().reason, "LocalOverlay");

        lab.simulation.crash(0);
        lab.reporter(1).set_live(["gw-2".to_owned()]);

        lab.pass(SOON);
        assert_eq!(lab.shown().reason, "EndToEnd");
    }
}

#[test]
fn a_copy_outside_of_the_tenant_namespace_is_not_written() {
    for seed in 0..SEEDS {
        let mut lab = Lab::new(seed, 1);
        lab.put("developers");
        lab.note(0, ConnectionState::Connected);
        lab.pass(SOON);
        assert_eq!(lab.status(TENANT)["value"], "Connected");
        assert_eq!(lab.status("developers"), Value::Null);

        // An administrator chooses the other namespace.
        lab.reporter(0)
            .set_tenant_namespaces(&tenants("developers"));
        lab.pass(SOON);

        assert_eq!(lab.status("developers")["value"], "Connected");
    }
}

#[test]
fn a_state_that_was_written_is_not_written_again() {
    for seed in 0..SEEDS {
        let mut lab = Lab::connected(seed, 2);
        for replica in [0, 1] {
            lab.note_path(replica, Reason::EndToEnd);
        }
        lab.pass(10 * SOON);
        let writes = lab.simulation.log().len();

        for _ in 0..3 {
            for replica in [0, 1] {
                lab.note(replica, ConnectionState::Connected);
                lab.note_path(replica, Reason::EndToEnd);
            }
            lab.pass(10 * SOON);
        }

        assert_eq!(lab.simulation.log().len(), writes);
    }
}

/// Name of the peer's Connection.
const NAME: &str = "gw-milan";

/// The tenant namespace of the peer.
const TENANT: &str = "liqo-tenant-milan";

/// An API server with the Connection of one peer, and the replicas that write this object.
struct Lab {
    simulation: Simulation,
    /// The reporters of all processes so far. The replica `gw-N` has the number N.
    made: Rc<RefCell<Vec<Reporter>>>,
    /// Number of the current process of each replica.
    current: Vec<usize>,
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
    fn new(seed: u64, replicas: usize) -> Self {
        let made = Rc::new(RefCell::new(Vec::new()));
        let reporters = Rc::clone(&made);
        let make = move |injector| {
            let mut reporters = reporters.borrow_mut();
            let name = format!("gw-{}", reporters.len());
            let state = Arc::new(Mutex::new(State::new(&name)));
            let controller = Connections(Arc::clone(&state));
            reporters.push(Reporter { state, injector });
            controller
        };
        let simulation = Simulation::new(seed).host_injected(make);
        let mut lab = Self {
            simulation: simulation.replicas(replicas),
            made,
            current: (1..=replicas).collect(),
        };
        for namespace in [TENANT, "developers"] {
            lab.simulation.local().put_namespace(namespace);
        }
        lab.put(TENANT);
        lab.configure();
        lab
    }

    fn connected(seed: u64, replicas: usize) -> Self {
        let mut lab = Self::new(seed, replicas);
        for replica in 0..replicas {
            lab.note(replica, ConnectionState::Connected);
        }
        lab.pass(SOON);
        assert_eq!(lab.shown().value, "Connected");
        lab
    }

    /// Crashes a replica, which starts again.
    fn restart(&mut self, replica: usize) {
        self.simulation.crash(replica);
        self.current[replica] = self.made.borrow().len() - 1;
        self.configure();
    }

    /// Sets the desired state of all replicas.
    fn configure(&self) {
        for replica in 0..self.current.len() {
            let names = self.current.iter().map(|number| format!("gw-{number}"));
            let reporter = self.reporter(replica);
            reporter.set_live(names);
            reporter.set_peers(["milan"], BTreeMap::new());
            reporter.set_tenant_namespaces(&tenants(TENANT));
        }
    }

    fn reporter(&self, replica: usize) -> Ref<'_, Reporter> {
        Ref::map(self.made.borrow(), |made| &made[self.current[replica]])
    }

    fn note(&self, replica: usize, state: ConnectionState) {
        let latency = Some(Duration::from_millis(3));
        self.reporter(replica).note("milan", state, latency);
    }

    fn note_path(&self, replica: usize, reason: Reason) {
        let message = String::new();
        let verdict = Verdict { reason, message };
        self.reporter(replica)
            .note_path("milan".to_owned(), verdict);
    }

    fn put(&mut self, namespace: &str) {
        let labels = json!({labels::REMOTE_CLUSTER_ID: "milan"});
        let metadata = json!({"name": NAME, "namespace": namespace, "labels": labels});
        self.simulation.local().put::<Connection>(
            json!({"metadata": metadata, "spec": {"type": "Server", "gatewayRef": {}}}),
        );
    }

    fn pass(&mut self, time: Duration) {
        self.simulation.pass(time);
    }

    /// Returns the status of each patch so far.
    fn written(&self) -> impl Iterator<Item = &Value> {
        let log = self.simulation.log().iter();
        log.filter_map(|sent| match &sent.request {
            Request::Write(Write {
                action: Action::Merge(patch),
                ..
            }) => Some(&patch["status"]),
            Request::Write(_) | Request::Read(_) | Request::Probe(_) => None,
        })
    }

    fn status(&mut self, namespace: &str) -> Value {
        let object = self.simulation.local().get::<Connection>(&key(namespace));
        object.expect("the object exists")["status"].clone()
    }

    fn shown(&mut self) -> Shown {
        let status = self.status(TENANT);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Shown {
            value: text(&status["value"]),
            is_measured: status["latency"]["timestamp"].is_string(),
            reason: text(&status["conditions"][0]["reason"]),
            message: text(&status["conditions"][0]["message"]),
        }
    }
}

fn key(namespace: &str) -> Key {
    Key::new(namespace, NAME)
}

fn tenants(namespace: &str) -> Arc<BTreeMap<String, String>> {
    Arc::new(BTreeMap::from([("milan".to_owned(), namespace.to_owned())]))
}
