//! Controllers of one process with Leases of their own.

use crate::process::wait_for;
use control_runtime::{
    Cache, Change, Cluster, Controller, Env, Key, LeaseSettings, Metrics, Plan, Ref, Registration,
    Replicas, Runtime, RuntimeStatus, Scope, Settings, Timing, WatchChange, WatchId, transport,
};
use fake_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;

const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(2),
    renew_deadline: Duration::from_millis(1_200),
    renew_period: Duration::from_millis(300),
    retry_period: Duration::from_millis(100),
};

/// Copies the ConfigMaps of a namespace to another one. Watches the namespace that one named `watched` contains.
struct Copier {
    from: &'static str,
    to: &'static str,
}

impl Controller for Copier {
    type Item = String; // Name of a ConfigMap.
    const NAME: &'static str = "copier";
    const FIELD_MANAGER: &'static str = "copier";

    fn resources(&self) -> Vec<Registration> {
        let scope = |namespace: &str| Scope::Namespace(namespace.into());
        let read = Registration::whole::<ConfigMap>(scope(self.from));
        let planned = Registration::whole::<ConfigMap>(Scope::Planned);
        vec![
            read,
            Registration::whole::<ConfigMap>(scope(self.to)),
            planned,
        ]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, name: &String, cache: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let mut plan = Plan::default();
        let data = |namespace| {
            let map = cache.local::<ConfigMap>(&Key::new(namespace, name))?;
            map.data.clone()
        };
        if let Some(data) = data(self.from).filter(|it| Some(it) != data(self.to).as_ref()) {
            let watched = data.get("k").filter(|_| name == "watched");
            plan.watches
                .extend(watched.map(|it| WatchChange::Add(watch(it))));
            let copy = Ref::of::<ConfigMap>(&Cluster::Local, &Key::new(self.to, name));
            plan.apply(copy, json!({"data": data}));
        }
        plan
    }
}

fn watch(namespace: &str) -> WatchId {
    WatchId {
        namespace: Some(namespace.to_owned()),
        ..crate::peers::watch(&Cluster::Local)
    }
}

fn lease(name: &str) -> LeaseSettings {
    LeaseSettings {
        namespace: "liqo".into(),
        name: name.into(),
        timing: TIMING,
    }
}

/// Lets `holder` hold a Lease for `seconds`.
fn hold(server: &ApiServer, lease: &str, holder: &str, seconds: u32) {
    server.put(
        &format!("/apis/coordination.k8s.io/v1/namespaces/liqo/leases/{lease}"),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": lease, "namespace": "liqo"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}}),
    );
}

fn put(server: &ApiServer, namespace: &str, name: &str, value: &str) {
    server.put(
        &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": value},
            "metadata": {"name": name, "namespace": namespace}}),
    );
}

fn value(server: &ApiServer, namespace: &str, name: &str) -> Option<String> {
    let map = server.get(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}"))?;
    Some(map["data"]["k"].as_str()?.to_owned())
}

/// A process with copiers, and the access to its cache.
struct Process {
    status: RuntimeStatus,
    cache: control_runtime::CacheReader,
    task: JoinHandle<()>,
}

impl Process {
    fn start(server: &ApiServer, copiers: Vec<(Copier, Replicas)>) -> Self {
        let config = kube::Config::new(server.url().parse().expect("a URL"));
        let settings = Settings {
            name: "test",
            identity: "a".into(),
            random: || [0; 32],
        };
        let client = transport::client(&config).expect("a client");
        let mut runtime = Runtime::new(client, settings, Metrics::default());
        for (copier, replicas) in copiers {
            runtime.add(copier, &replicas).expect("registrations");
        }
        Self {
            status: runtime.status(),
            cache: runtime.reader(),
            task: tokio::spawn(runtime.run(std::future::pending())),
        }
    }

    fn has(&self, namespace: &str, name: &str) -> bool {
        let cache = self.cache.read();
        cache
            .local::<ConfigMap>(&Key::new(namespace, name))
            .is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn each_controller_follows_its_own_lease() {
    let server = ApiServer::start();
    hold(&server, "second", "b", 3600);
    put(&server, "from", "x", "1");
    let copier = |to| Copier { from: "from", to };
    let process = Process::start(
        &server,
        vec![
            (copier("to-1"), Replicas::WarmStandby(lease("first"))),
            (copier("to-2"), Replicas::WarmStandby(lease("second"))),
            (copier("to-3"), Replicas::Active),
        ],
    );
    let is = |to: &str| value(&server, to, "x").is_some();
    wait_for("the copies of the leader and of all", || {
        is("to-1") && is("to-3")
    })
    .await;
    wait_for("a ready process", || process.status.ready().is_ok()).await;
    assert!(process.status.holds("first") && !process.status.holds("second"));
    assert!(!process.status.is_leader() && !is("to-2"));

    hold(&server, "second", "", 1);
    hold(&server, "first", "b", 3600);
    wait_for("the other Lease", || {
        process.status.holds("second") && !process.status.holds("first")
    })
    .await;
    put(&server, "from", "x", "2");
    wait_for("its copy", || {
        value(&server, "to-2", "x").as_deref() == Some("2")
    })
    .await;
    wait_for("the copy of all", || {
        value(&server, "to-3", "x").as_deref() == Some("2")
    })
    .await;
    assert_eq!(value(&server, "to-1", "x").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_cold_standby_watches_nothing_and_is_ready() {
    let server = ApiServer::start();
    hold(&server, "cold", "b", 3600);
    put(&server, "from", "x", "1");
    put(&server, "warm", "y", "1");
    let cold = Copier {
        from: "from",
        to: "to",
    };
    let warm = Copier {
        from: "warm",
        to: "to-warm",
    };
    let process = Process::start(
        &server,
        vec![
            (cold, Replicas::ColdStandby(lease("cold"))),
            (warm, Replicas::Active),
        ],
    );
    wait_for("the warm copy", || value(&server, "to-warm", "y").is_some()).await;
    wait_for("a ready standby", || process.status.ready().is_ok()).await;
    assert!(!process.has("from", "x") && process.has("warm", "y"));

    hold(&server, "cold", "", 1);
    wait_for("the leader's copy", || value(&server, "to", "x").is_some()).await;
    assert!(process.has("from", "x"));

    hold(&server, "cold", "b", 3600);
    wait_for("the end of its watches", || !process.has("from", "x")).await;
    put(&server, "from", "z", "1");
    put(&server, "warm", "z", "1");
    wait_for("the other controller", || {
        value(&server, "to-warm", "z").is_some()
    })
    .await;
    assert_eq!(process.status.ready(), Ok(()));
    assert_eq!(value(&server, "to", "z"), None);

    hold(&server, "cold", "", 1);
    wait_for("what changed meanwhile", || {
        value(&server, "to", "z").is_some()
    })
    .await;
}

#[tokio::test]
async fn a_leader_is_ready_whose_watches_another_controller_has_listed() {
    let server = ApiServer::start();
    hold(&server, "cold", "b", 3600);
    put(&server, "from", "x", "1");
    let copier = |to| Copier { from: "from", to };
    let process = Process::start(
        &server,
        vec![
            (copier("to-cold"), Replicas::ColdStandby(lease("cold"))),
            (copier("to-warm"), Replicas::Active),
        ],
    );
    wait_for("the warm copy", || value(&server, "to-warm", "x").is_some()).await;
    wait_for("a ready standby", || process.status.ready().is_ok()).await;

    hold(&server, "cold", "", 1);
    wait_for("the leader's copy", || {
        value(&server, "to-cold", "x").is_some()
    })
    .await;
    wait_for("a ready leader", || process.status.ready().is_ok()).await;
}

#[tokio::test]
async fn a_leader_plans_its_watches_anew() {
    let server = ApiServer::start();
    hold(&server, "cold", "", 1);
    put(&server, "from", "watched", "extra");
    put(&server, "extra", "x", "1");
    let copier = Copier {
        from: "from",
        to: "to",
    };
    let process = Process::start(
        &server,
        vec![(copier, Replicas::ColdStandby(lease("cold")))],
    );
    wait_for("the planned watch", || process.has("extra", "x")).await;

    hold(&server, "cold", "b", 3600);
    wait_for("the end of its watches", || !process.has("extra", "x")).await;
    server.remove("/api/v1/namespaces/from/configmaps/watched");
    put(&server, "from", "y", "1");
    hold(&server, "cold", "", 1);
    wait_for("the copy of the next leader", || {
        value(&server, "to", "y").is_some() && process.status.ready().is_ok()
    })
    .await;
    put(&server, "extra", "z", "1");
    put(&server, "from", "z", "1");
    wait_for("a later change", || value(&server, "to", "z").is_some()).await;

    assert!(!process.has("extra", "x") && !process.has("extra", "z"));
}
