//! Probes of an API server that does not respond, or that is another cluster's.

use crate::peers::kubeconfig;
use crate::process::{Process, wait_for};
use base64::Engine as _;
use control_runtime::{
    Cache, Change, Cluster, ClusterChange, Controller, Destinations, Env, Outcome, Plan, Probe,
    Registration, RemoteConfig, Request, Scope,
};
use fake_apiserver::{ApiServer, Front, Reply};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(300);

type Outcomes = Arc<Mutex<Vec<Outcome>>>;

/// Probes `milan` every 50 ms.
struct Prober {
    config: RemoteConfig,
    outcomes: Outcomes,
}

impl Controller for Prober {
    type Item = String;
    const NAME: &'static str = "prober";
    const FIELD_MANAGER: &'static str = "prober";

    fn resources(&self) -> Vec<Registration> {
        vec![Registration::whole::<ConfigMap>(Scope::Namespace(
            "here".into(),
        ))]
    }

    fn observe(&mut self, change: &Change<'_>, _: &Cache) -> Vec<String> {
        vec![change.object.key.name.clone()]
    }

    fn plan(&mut self, item: &String, _: &Cache, _: &mut Env<'_>) -> Plan<String> {
        let cluster = Cluster::remote("milan");
        let config = Box::new(self.config.clone());
        Plan {
            clusters: vec![ClusterChange::Set(cluster.clone(), config)],
            probes: vec![Probe {
                cluster,
                path: "/livez",
                timeout: TIMEOUT,
            }],
            requeue: vec![(Duration::from_millis(50), item.clone())],
            ..Plan::default()
        }
    }

    fn done(&mut self, _: &String, _: &Request, outcome: &Outcome, _: &Cache) -> Vec<String> {
        self.outcomes
            .lock()
            .expect("no panic")
            .push(outcome.clone());
        Vec::new()
    }
}

fn start(local: &ApiServer, kubeconfig: &str) -> (Process, Outcomes) {
    local.put(
        "/api/v1/namespaces/here/configmaps/a",
        json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "here"}}),
    );
    let outcomes = Outcomes::default();
    let prober = Prober {
        config: RemoteConfig::parse(kubeconfig, Destinations::Any).expect("valid kubeconfig"),
        outcomes: Arc::clone(&outcomes),
    };
    let process = Process::host_all(&local.url(), "a", None, |runtime, replicas| {
        runtime.add(prober, replicas).expect("registrations");
    });

    (process, outcomes)
}

async fn wait_for_last(name: &str, outcomes: &Outcomes, is_wanted: fn(&Outcome) -> bool) {
    outcomes.lock().expect("no panic").clear();
    wait_for(name, || {
        outcomes
            .lock()
            .expect("no panic")
            .last()
            .is_some_and(is_wanted)
    })
    .await;
}

#[tokio::test]
async fn each_failure_of_a_probe_is_a_result_and_the_interval_stays() {
    let (local, peer) = (ApiServer::start(), ApiServer::start());
    let front = Front::start(&peer, |_| Reply::response("200 OK", "", "ok"));
    let (process, outcomes) = start(&local, &kubeconfig(&front.url(), "token"));
    wait_for_last("a response", &outcomes, |it| {
        matches!(it, Outcome::Answer(_))
    })
    .await;
    let is_livez = |head: &fake_apiserver::Head| head.target == "/livez";
    assert!(front.count(is_livez) > 0);

    front.set(|_| {
        Reply::response(
            "500 Internal Server Error",
            "",
            "[-]etcd failed\nlivez check failed",
        )
    });
    wait_for_last(
        "a failure",
        &outcomes,
        |it| matches!(it, Outcome::Refused(status) if status.code == 500),
    )
    .await;
    front.set(|_| Reply::Silence);
    wait_for_last("a time-out", &outcomes, |it| {
        matches!(it, Outcome::TimedOut)
    })
    .await;
    // The interval does not grow: with the backoff of failed items there would be fewer in 5 s.
    outcomes.lock().expect("no panic").clear();
    let begin = std::time::Instant::now();
    wait_for("further time-outs", || outcomes.lock().unwrap().len() >= 6).await;
    let taken = begin.elapsed();
    assert!(taken < TIMEOUT * 6 + Duration::from_secs(3), "{taken:?}");
    front.set(|_| Reply::response("200 OK", "", "ok"));
    wait_for_last("a response", &outcomes, |it| {
        matches!(it, Outcome::Answer(_))
    })
    .await;
    process.stop().await;
}

#[tokio::test]
async fn a_server_of_another_authority_is_a_result_of_its_own() {
    let local = ApiServer::start();
    let (peer, other) = (ApiServer::start_tls(), ApiServer::start_tls());
    let kubeconfig = |url: String| {
        let pem = pem(&peer.certificate().unwrap());
        let authority = base64::engine::general_purpose::STANDARD.encode(pem);
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority-data": authority}}],
            "users": [{"name": "u", "user": {"token": "token"}}]})
        .to_string()
    };
    let (process, outcomes) = start(&local, &kubeconfig(other.url()));
    wait_for_last("the refusal", &outcomes, |it| {
        matches!(it, Outcome::Untrusted(_))
    })
    .await;
    process.stop().await;

    let (process, outcomes) = start(&local, &kubeconfig(peer.url()));
    wait_for_last("a response", &outcomes, |it| {
        !matches!(it, Outcome::Untrusted(_))
    })
    .await;
    process.stop().await;
}

fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}
