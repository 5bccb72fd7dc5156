//! The times of changes that controllers observe.

use crate::election::TIMING;
use crate::process::{Process, put_node, wait_for};
use control_runtime::simulation::{Simulation, Unsettled};
use control_runtime::{Cache, Change, Controller, Env, Plan, Registration, Scope};
use fake_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Limit of [`Simulation::settle`], in virtual time.
const LIMIT: Duration = Duration::from_secs(600);

type Observed = Vec<(String, Option<Instant>)>;

/// Records the nodes that it observes, with the times of their changes.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Observed>>);

impl Controller for Recorder {
    type Item = String;
    const NAME: &'static str = "recorder";
    const FIELD_MANAGER: &'static str = "recorder";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<Node>(Scope::All)]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        let name = change.object.key.name.clone();
        self.observed().push((name, change.seen_at()));
        Vec::new()
    }

    fn plan(&mut self, _: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        Plan::default()
    }
}

impl Recorder {
    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().expect("no panic")
    }

    fn has(&self, name: &str) -> bool {
        self.observed().iter().any(|(it, _)| it == name)
    }

    /// Returns the time of the last change of a node.
    fn seen_at(&self, name: &str) -> Option<Instant> {
        let observed = self.observed();
        let last = observed.iter().rfind(|(it, _)| it == name);
        last.unwrap_or_else(|| panic!("{name} was not observed")).1
    }
}

/// Returns two replicas, the first of which leads, and their recorders.
fn replicas() -> (Simulation, [Recorder; 2]) {
    let made: Arc<Mutex<Vec<Recorder>>> = Arc::default();
    let recorders = Arc::clone(&made);
    let make = move || {
        let recorder = Recorder::default();
        recorders.lock().expect("no panic").push(recorder.clone());
        recorder
    };
    let simulation = Simulation::new(1).host(make).replicas(2);
    let made = made.lock().expect("no panic");
    let last = made.last_chunk::<2>().expect("one of each replica");

    (simulation, last.clone())
}

fn put(simulation: &mut Simulation, name: &str) -> Result<(), Unsettled> {
    let node = json!({"metadata": {"name": name}});
    simulation.local().put::<Node>(node);
    simulation.settle(LIMIT)
}

#[test]
fn a_change_has_the_simulated_time_on_the_leader_and_none_on_a_standby() -> Result<(), Unsettled> {
    let (mut simulation, [leader, standby]) = replicas();
    put(&mut simulation, "before")?;
    put(&mut simulation, "first")?;
    let minute = Duration::from_secs(60);
    simulation.pass(minute);
    put(&mut simulation, "second")?;

    assert_eq!(leader.seen_at("before"), None, "of the first list");
    let [first, second] = ["first", "second"].map(|name| leader.seen_at(name).unwrap());
    let between = second - first;
    assert!(between >= minute && between < minute * 2, "{between:?}");
    assert!(standby.has("second"));
    assert!(standby.observed().iter().all(|(_, at)| at.is_none()));
    Ok(())
}

#[test]
fn a_new_leader_observes_existing_objects_without_a_time() -> Result<(), Unsettled> {
    let (mut simulation, [former, leader]) = replicas();
    put(&mut simulation, "first")?;
    put(&mut simulation, "second")?;
    assert!(former.seen_at("second").is_some());

    simulation.hand_over(1);
    simulation.settle(LIMIT)?;
    assert_eq!(leader.seen_at("second"), None);
    put(&mut simulation, "third")?;

    assert!(leader.seen_at("third").is_some());
    assert_eq!(former.seen_at("third"), None);
    Ok(())
}

#[tokio::test]
async fn a_process_that_does_not_lead_observes_changes_without_a_time() {
    let server = ApiServer::start();
    let recorders = [Recorder::default(), Recorder::default()];
    let [leads, follows] = &recorders;
    let start = |identity: &str, recorder: &Recorder| {
        Process::host(&server.url(), identity, Some(TIMING), recorder.clone())
    };
    let leader = start("a", leads);
    wait_for("a leader", || leader.status.is_leader()).await;
    let standby = start("b", follows);
    wait_for("a standby", || standby.status.ready().is_ok()).await;
    let began_at = Instant::now();
    put_node(&server, "rome-1", "192.0.2.1");
    let has = |name: &str| recorders.iter().all(|it| it.has(name));
    wait_for("the node", || has("rome-1")).await;

    assert!(leads.seen_at("rome-1").unwrap() >= began_at);
    assert_eq!(follows.seen_at("rome-1"), None);

    leader.stop().await;
    wait_for("the standby to lead", || standby.status.is_leader()).await;
    assert_eq!(follows.seen_at("rome-1"), None, "it existed before");
    put_node(&server, "rome-2", "192.0.2.2");
    wait_for("the next node", || follows.has("rome-2")).await;
    assert!(follows.seen_at("rome-2").is_some());
    standby.stop().await;
}
