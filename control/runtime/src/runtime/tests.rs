use super::*;
use crate::cache::{Cache, Change};
use crate::controller::{Action, Gate, Plan, Write};
use crate::registration::{Registration, Scope};
use crate::watch::Signal;
use control_client::election::{Leadership, LeaseSettings, Timing, Turn};
use control_client::object::{Key, Ref};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use serde_json::json;

/// More than the requests of a resource that may be in flight.
const WRITES: usize = 100;

/// Writes many objects for each item; one of the writes needs no leader.
struct Writer;

impl Controller for Writer {
    type Item = String;
    const NAME: &'static str = "writer";
    const FIELD_MANAGER: &'static str = "writer";

    fn resources(&self) -> Vec<Registration> {
        let maps = Registration::whole::<ConfigMap>(Scope::All);
        vec![maps.optional().fields(&["data"])]
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<String> {
        Vec::new()
    }

    fn started(&mut self, _: &Cache) -> Vec<String> {
        (0..WRITES).map(|number| number.to_string()).collect()
    }

    fn plan(&mut self, name: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let object = Ref::of::<ConfigMap>(&Cluster::Local, &Key::new("a", name));
        let mut write = Write::new(object, Action::Create(json!({})));
        if name == "99" {
            write.gate = Gate::Always;
        }
        Plan {
            writes: vec![write],
            ..Plan::default()
        }
    }
}

/// A runtime whose API server never answers.
fn runtime() -> Runtime {
    let mut runtime = empty();
    let replicas = Replicas::WarmStandby(lease("a", "lease"));
    runtime.add(Writer, &replicas).unwrap();
    runtime.start_workers();
    runtime
}

fn lease(namespace: &str, name: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: namespace.into(),
        name: name.into(),
        timing: Timing::default(),
    }
}

/// A runtime without controllers.
fn empty() -> Runtime {
    let never = tower::service_fn(|_: http::Request<Body>| async {
        std::future::pending::<Result<http::Response<Body>, tower::BoxError>>().await
    });
    let settings = Settings {
        name: "test",
        identity: "a".into(),
        random: || [0; 32],
    };
    Runtime::new(Client::new(never, "a"), settings, Metrics::default())
}

/// Plans until nothing is due.
fn settle(runtime: &mut Runtime) {
    for _ in 0..WRITES {
        runtime.turn();
    }
}

#[tokio::test]
async fn a_standby_queues_no_write_of_the_leader() {
    let mut runtime = runtime();

    settle(&mut runtime);

    assert_eq!(
        (runtime.requests.len(), runtime.admission.waiting()),
        (1, 0)
    );
}

#[tokio::test]
async fn writes_that_wait_are_dropped_at_the_loss_of_the_lease_and_planned_again_at_take_over() {
    let mut runtime = runtime();
    settle(&mut runtime);
    runtime.take_turn(0, Turn::Leads(Leadership::permanent()));
    settle(&mut runtime);
    let in_flight = runtime.requests.len();
    let waiting = runtime.admission.waiting();
    assert!(in_flight < WRITES && waiting > 0);

    runtime.take_turn(0, Turn::StandsBy);
    assert_eq!(runtime.admission.waiting(), 0);
    settle(&mut runtime);
    assert_eq!(runtime.requests.len(), in_flight);

    // The runtime plans the items of the requests in flight again when these have ended.
    runtime.take_turn(0, Turn::Leads(Leadership::permanent()));
    settle(&mut runtime);
    assert_eq!(runtime.admission.waiting(), waiting);
}

#[test]
fn controllers_that_name_one_lease_share_its_election() {
    let mut elections = Elections::default();

    let first = elections.join(&lease("a", "lease"));

    assert_eq!(elections.join(&lease("a", "lease")), first);
    assert_ne!(elections.join(&lease("a", "other")), first);
    assert_ne!(elections.join(&lease("b", "lease")), first);
}

/// Applies a field that the [`Writer`] applies, too.
struct Rival;

impl Controller for Rival {
    type Item = String;
    const NAME: &'static str = "rival";
    const FIELD_MANAGER: &'static str = "rival";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<ConfigMap>(Scope::All).fields(&["data[k]"])]
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<String> {
        Vec::new()
    }

    fn plan(&mut self, _: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        Plan::default()
    }
}

#[tokio::test]
async fn a_controller_that_declares_the_fields_of_another_one_is_refused() {
    let mut runtime = empty();
    runtime.add(Writer, &Replicas::Active).unwrap();

    let refused = runtime.add(Rival, &Replicas::Active).unwrap_err();

    assert!(matches!(refused, RegistrationError::Owners { .. }));
    assert_eq!(runtime.workers.len(), 1);
}

#[tokio::test]
async fn late_signals_of_a_restarted_watch_are_ignored() {
    let mut runtime = runtime();
    let registration = Registration::whole::<ConfigMap>(Scope::All);
    let id = registration.watch_id().unwrap();
    let signal = |name: &str, is_listed| {
        let object = json!({"metadata": {"namespace": "a", "name": name, "uid": name,
            "resourceVersion": "1"}});
        let entry = registration.decode(&object.to_string()).unwrap();
        Signal::Object { entry, is_listed }
    };
    let known = |runtime: &Runtime| {
        let cache = runtime.cache.read();
        let objects = cache.objects::<ConfigMap>(&Cluster::Local);
        ["kept", "late"].map(|name| objects.get(&Key::new("a", name)).is_some())
    };
    runtime.add_watch(id.clone(), 0);
    for signal in [Signal::ListBegins, signal("kept", true), Signal::ListEnds] {
        runtime.take_signal((id.clone(), 0, signal));
    }
    runtime.relist(&Cluster::Local);
    runtime.take_signal((id.clone(), 1, Signal::ListBegins));

    runtime.take_signal((id.clone(), 0, signal("late", false)));
    runtime.take_signal((id.clone(), 0, Signal::ListEnds));

    assert_eq!(known(&runtime), [true, false]);
    runtime.take_signal((id, 1, Signal::ListEnds));
    assert_eq!(known(&runtime), [false, false]);
}

/// Sends the items that it plans to a test.
struct Sender(mpsc::UnboundedSender<String>);

impl Controller for Sender {
    type Item = String;
    const NAME: &'static str = "sender";
    const FIELD_MANAGER: &'static str = "sender";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<ConfigMap>(Scope::All).optional()]
    }

    fn observe(&mut self, _: &Change<'_>, _: &Cache) -> Vec<String> {
        Vec::new()
    }

    fn plan(&mut self, name: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        self.0.send(name.clone()).ok();
        Plan::default()
    }
}

#[tokio::test]
async fn an_item_of_another_task_is_planned_once_the_controller_has_started_and_without_delay() {
    let mut runtime = empty();
    let (sender, mut planned) = mpsc::unbounded_channel();
    let injector = runtime.add(Sender(sender), &Replicas::Active).unwrap();
    for _ in 0..2 {
        injector.push("early".to_owned());
    }
    runtime.turn();
    assert!(planned.is_empty(), "the controller has not started");
    runtime.start_workers();
    let run = tokio::spawn(runtime.run(std::future::pending()));
    assert_eq!(planned.recv().await.as_deref(), Some("early"));

    injector.push("late".to_owned());

    // Without a notification the runtime looks again after `WAIT_MAX`.
    let late = tokio::time::timeout(WAIT_MAX / 2, planned.recv()).await;
    assert_eq!(late.expect("the runtime is woken").as_deref(), Some("late"));
    run.abort();
}
