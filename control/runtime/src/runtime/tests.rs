use super::*;
use crate::cache::{Cache, Change};
use crate::controller::{Action, ClusterChange, Gate, Plan, Write};
use crate::entry::Signal;
use crate::registration::{Registration, Scope};
use control_client::election::{ElectionEvent, Leadership, LeaseSettings, Timing};
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
        (runtime.requests.len(), runtime.in_flight.waiting()),
        (1, 0)
    );
}

#[tokio::test]
async fn writes_that_wait_are_dropped_at_the_loss_of_the_lease_and_planned_again_at_take_over() {
    let mut runtime = runtime();
    settle(&mut runtime);
    runtime.take_election_event(0, ElectionEvent::Leads(Leadership::permanent()));
    settle(&mut runtime);
    let in_flight = runtime.requests.len();
    let waiting = runtime.in_flight.waiting();
    assert!(in_flight < WRITES && waiting > 0);

    runtime.take_election_event(0, ElectionEvent::StandsBy);
    assert_eq!(runtime.in_flight.waiting(), 0);
    settle(&mut runtime);
    assert_eq!(runtime.requests.len(), in_flight);

    // The runtime plans the items of the requests in flight again when these have ended.
    runtime.take_election_event(0, ElectionEvent::Leads(Leadership::permanent()));
    settle(&mut runtime);
    assert_eq!(runtime.in_flight.waiting(), waiting);
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
        let object = registration.decode(&object.to_string());
        Signal::Object { object, is_listed }
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

/// A configuration whose server does not exist.
fn config() -> control_client::kubeconfig::RemoteConfig {
    let text = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]}"#;
    control_client::kubeconfig::RemoteConfig::parse(
        text,
        control_client::destination::Destinations::Any,
    )
    .unwrap()
}

/// Returns the watch of the ConfigMaps with a label.
fn watch_of(cluster: &Cluster, label: &str) -> WatchId {
    let id = Registration::whole::<ConfigMap>(Scope::All).watch_id();
    WatchId {
        cluster: cluster.clone(),
        selector: control_client::watch::Selector {
            labels: label.to_owned(),
            ..control_client::watch::Selector::default()
        },
        ..id.unwrap()
    }
}

fn effects(change: ClusterChange) -> Effects {
    Effects {
        clusters: vec![change],
        ..Effects::default()
    }
}

#[tokio::test]
async fn a_watch_of_another_controller_starts_again_when_its_cluster_is_set_again() {
    let mut runtime = runtime();
    let (sender, _planned) = mpsc::unbounded_channel();
    runtime.add(Sender(sender), &Replicas::Active).unwrap();
    let milan = Cluster::remote("milan");
    let set = || effects(ClusterChange::Set(milan.clone(), Box::new(config())));
    let [own, shared, other] = ["own", "shared", "other"].map(|it| watch_of(&milan, it));
    for (id, worker) in [(&own, 0), (&shared, 0), (&shared, 1), (&other, 1)] {
        runtime.add_watch(id.clone(), worker);
    }
    let running = |runtime: &Runtime| {
        [&own, &shared, &other].map(|id| (0..99).any(|it| runtime.watches.is_current(id, it)))
    };
    assert_eq!(running(&runtime), [false; 3]);
    // The first controller is a standby, but warm.
    runtime.carry_out(0, set());
    assert_eq!(running(&runtime), [true; 3]);

    runtime.carry_out(0, effects(ClusterChange::Remove(milan.clone())));

    assert_eq!(running(&runtime), [false; 3]);
    runtime.carry_out(0, set());
    assert_eq!(running(&runtime), [false, true, true]);
}

#[tokio::test]
async fn watches_whose_versions_go_back_are_restarted_once_per_interval() {
    let mut runtime = runtime();
    let id = watch_of(&Cluster::Local, "a");
    let milan = Cluster::remote("milan");
    let set = ClusterChange::Set(milan.clone(), Box::new(config()));
    runtime.carry_out(0, effects(set));
    let peer = watch_of(&milan, "a");
    for id in [&id, &peer] {
        runtime.add_watch(id.clone(), 0);
    }
    let generations = |runtime: &Runtime| {
        let current = |id| (0..9).find(|it| runtime.watches.is_current(id, *it));
        [current(&id), current(&peer)]
    };
    assert_eq!(generations(&runtime), [Some(0), Some(1)]);

    for _ in 0..3 {
        runtime.take_signal((peer.clone(), 1, Signal::WentBack));
        runtime.turn();
        runtime.take_signal((peer.clone(), 2, Signal::WentBack));
        runtime.turn();
    }

    assert_eq!(generations(&runtime), [Some(0), Some(2)]);
    let next = runtime.next_at(Instant::now());
    assert!(next <= Instant::now() + WAIT_MAX);
}

#[tokio::test(start_paused = true)]
async fn the_lists_of_all_watches_of_a_cluster_are_spread() {
    const WATCHES: usize = 100;
    let times = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&times);
    let client = tower::service_fn(move |_: http::Request<Body>| {
        seen.lock().unwrap().push(tokio::time::Instant::now());
        std::future::pending::<Result<http::Response<Body>, tower::BoxError>>()
    });
    let mut runtime = runtime();
    runtime.clusters = Clusters::new(Client::new(client, "a"));
    for number in 0..WATCHES {
        runtime.add_watch(watch_of(&Cluster::Local, &number.to_string()), 0);
    }
    let listed = async |count| {
        while times.lock().unwrap().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    listed(WATCHES).await;

    runtime.relist(&Cluster::Local);
    listed(2 * WATCHES).await;

    let times = times.lock().unwrap();
    let mean_interval = (times[2 * WATCHES - 1] - times[WATCHES]) / 100;
    assert!(times[WATCHES - 1] - times[0] < Duration::from_millis(10));
    assert!(
        mean_interval > Duration::from_millis(10),
        "{mean_interval:?}"
    );
}

#[tokio::test]
async fn an_answer_beyond_the_limits_of_its_cluster_is_counted() {
    let mut registry = prometheus_client::registry::Registry::default();
    let mut runtime = runtime();
    runtime.metrics = Metrics::new(&mut registry);
    let client = tower::service_fn(|_: http::Request<Body>| async {
        let object = r#"{"metadata": {"namespace": "a", "name": "99", "resourceVersion": "1"}}"#;
        let body = Body::from(object.as_bytes().to_vec());
        Ok::<_, tower::BoxError>(http::Response::new(body))
    });
    runtime.clusters = Clusters::new(Client::new(client, "a"));
    let limits = CacheLimits {
        objects: 0,
        bytes: 0,
    };
    write(&runtime.cache).add_cluster(Cluster::Local, limits);
    write(&runtime.cache).add_watch(watch_of(&Cluster::Local, ""));
    settle(&mut runtime);

    let response = runtime.requests.next().await.expect("a request");
    runtime.take_response(response);

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let line = r#"cache_rejected_objects_total{cluster="_local"} 1"#;
    assert!(text.contains(line), "{text}");
}
