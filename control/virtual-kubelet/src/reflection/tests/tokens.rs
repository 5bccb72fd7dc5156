//! The controller of tokens with two clusters.

use super::peering;
use super::side::{Connect, Sides, TENANT, local, milan, remote};
use crate::reflection::controller::ReflectionController;
use crate::reflection::token::{TokenKey, TokenSecret, TokenSpec};
use crate::reflection::tokens::awaited::{Awaited, Waiting, missing, pods_of};
use crate::reflection::tokens::controller::TokenController;
use crate::reflection::tokens::settings::TokenSettings;
use control_runtime::simulation::Simulation;
use control_runtime::{
    Action, Answer, Cache, Change, Controller, Env, Key, Outcome, Plan, Registration, Request,
    Scope, WatchId,
};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::Status;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// State of the API server of this cluster, which the simulation lacks: it issues tokens.
#[derive(Debug)]
struct Server {
    issued: u32,
    /// Longest lifetime in seconds.
    lifetime: i64,
    is_refusing: bool,
    /// Objects that the pod `web` waits for.
    missing: Vec<Awaited>,
    /// Pods that may no longer wait.
    waiting: Vec<Waiting>,
}

/// Returns responses to the requests of the controller for tokens.
struct Issuing {
    controller: TokenController,
    server: Arc<Mutex<Server>>,
}

impl Controller for Issuing {
    type Item = <TokenController as Controller>::Item;
    const NAME: &'static str = TokenController::NAME;
    const FIELD_MANAGER: &'static str = TokenController::FIELD_MANAGER;

    fn resources(&self) -> Vec<Registration> {
        self.controller.resources()
    }

    fn observe(&mut self, change: &Change<'_>, cache: &Cache) -> Vec<Self::Item> {
        let settings = settings();
        let mut server = self.server.lock().unwrap();
        server.waiting.extend(pods_of(change, &settings));
        let pod = cache.local::<Pod>(&local("web"));
        let missing = pod.map(|it| missing(cache, &settings, (it, "shop-rome"), true));
        server.missing = missing.unwrap_or_default();
        drop(server);
        self.controller.observe(change, cache)
    }

    fn plan(&mut self, item: &Self::Item, cache: &Cache, env: &mut Env<'_>) -> Plan<Self::Item> {
        let mut plan = self.controller.plan(item, cache, env);
        let is_post = |action: &Action| matches!(action, Action::Post(_));
        let posts: Vec<_> = plan
            .writes
            .extract_if(.., |it| is_post(&it.action))
            .collect();
        for post in posts {
            let mut server = self.server.lock().unwrap();
            let Action::Post(body) = &post.action else {
                panic!("no request for a token");
            };
            let seconds = body["spec"]["expirationSeconds"]
                .as_i64()
                .unwrap()
                .min(server.lifetime);
            let expiration = env.now + Duration::from_secs(seconds.try_into().unwrap());
            let outcome = if server.is_refusing {
                let status = Status::failure("no", "Forbidden").with_code(403);
                plan.is_incomplete = true;
                Outcome::Refused(Box::new(status))
            } else {
                server.issued += 1;
                let token = format!("token-{}", server.issued);
                Outcome::Answer(Answer(
                    json!({"status": {"token": token, "expirationTimestamp": expiration.to_string()}}),
                ))
            };
            let items = self
                .controller
                .done(item, &Request::Write(post), &outcome, cache);
            plan.requeue
                .extend(items.into_iter().map(|it| (Duration::ZERO, it)));
        }
        plan
    }

    fn started(&mut self, cache: &Cache) -> Vec<Self::Item> {
        self.controller.started(cache)
    }

    fn listed(&mut self, id: &WatchId, cache: &Cache) -> Vec<Self::Item> {
        self.controller.listed(id, cache)
    }

    fn done(
        &mut self,
        item: &Self::Item,
        request: &Request,
        outcome: &Outcome,
        cache: &Cache,
    ) -> Vec<Self::Item> {
        self.controller.done(item, request, outcome, cache)
    }
}

fn settings() -> TokenSettings {
    let key = |key: &str, audience: Option<&str>| TokenKey {
        key: key.to_owned(),
        token: TokenSpec {
            audience: audience.map(str::to_owned),
            expiration_seconds: 3600,
        },
    };
    let secret_of = move |pod: &Pod| TokenSecret {
        name: format!("{}-token", pod.metadata.name.as_ref().unwrap()),
        tokens: match pod.metadata.annotations {
            Some(_) => Vec::new(),
            None => vec![key("a", None), key("b", Some("vault")), key("c", None)],
        },
    };
    TokenSettings {
        peering: peering(),
        tenant_namespace: TENANT.to_owned(),
        node: "milan".to_owned(),
        pods: Registration::whole::<Pod>(Scope::All),
        secret_of: Arc::new(secret_of),
    }
}

struct Fixture {
    sides: Sides,
    server: Arc<Mutex<Server>>,
}

fn fixture(seed: u64) -> Fixture {
    hosted(seed, false)
}

/// Creates both clusters. The process that is the leader reflects other objects, too.
fn hosted(seed: u64, is_leader: bool) -> Fixture {
    let server = Server {
        issued: 0,
        lifetime: 100_000,
        is_refusing: false,
        missing: Vec::new(),
        waiting: Vec::new(),
    };
    let server = Arc::new(Mutex::new(server));
    let shared = Rc::new(RefCell::new(Arc::clone(&server)));
    let make = move || Issuing {
        controller: TokenController::new(settings()),
        server: Arc::clone(&shared.borrow()),
    };
    let simulation = Simulation::new(seed).host(|| Connect).host(make);
    let simulation = match is_leader {
        true => simulation.host(|| ReflectionController::new(super::side::settings())),
        false => simulation,
    };
    Fixture {
        sides: Sides::with(simulation),
        server,
    }
}

fn pod(uid: &str, node: &str) -> Value {
    json!({"metadata": {"uid": uid}, "spec": {"nodeName": node, "serviceAccountName": "web", "containers": []}})
}

impl Fixture {
    fn put_pod(&mut self, name: &str, node: &str) {
        self.sides.put_in_shop::<Pod>(name, pod("", node));
        self.sides.pass();
    }

    fn issued(&self) -> u32 {
        self.server.lock().unwrap().issued
    }

    fn uid(&mut self, name: &str) -> Value {
        let pod = self.sides.simulation.local().get::<Pod>(&local(name));
        pod.unwrap()["metadata"]["uid"].clone()
    }
}

#[test]
fn a_pod_of_the_node_has_its_tokens_in_one_secret() {
    for seed in 0..20 {
        let mut fixture = fixture(seed);
        fixture.put_pod("web", "milan");
        fixture.put_pod("other", "rome-1");

        assert_eq!(fixture.sides.writes(), ["create Secret/web-token"]);
        // Two keys have the same token.
        assert_eq!(fixture.issued(), 2);
        let secret = fixture.sides.remote::<Secret>("web-token");
        assert_eq!(secret["data"]["a"], secret["data"]["c"]);
        assert_ne!(secret["data"]["a"], secret["data"]["b"]);
        assert_eq!(
            secret["metadata"]["labels"],
            json!({
                "offloading.liqo.io/origin": "rome",
                "offloading.liqo.io/destination": "milan",
                "offloading.liqo.io/nodename": "milan",
                "offloading.liqo.io/service-account-name": "web",
            })
        );
        let uid = fixture.uid("web");
        let annotations = &secret["metadata"]["annotations"];
        assert_eq!(
            annotations["offloading.liqo.io/service-account-for-pod-uid"],
            uid
        );
        assert!(fixture.sides.simulation.redundant().is_empty());
    }
}

#[test]
fn tokens_are_refreshed_before_they_expire() {
    let mut fixture = fixture(1);
    fixture.put_pod("web", "milan");
    let first = fixture.sides.remote::<Secret>("web-token");

    fixture.sides.simulation.pass(Duration::from_secs(2870));
    assert_eq!(fixture.sides.remote::<Secret>("web-token"), first);
    fixture.sides.simulation.pass(Duration::from_secs(50));
    let second = fixture.sides.remote::<Secret>("web-token");
    assert_ne!(second["data"], first["data"]);
    assert_eq!(
        fixture.sides.writes(),
        ["create Secret/web-token", "apply Secret/web-token"]
    );
    assert_eq!(fixture.issued(), 4);

    fixture.sides.simulation.pass(Duration::from_secs(3000));
    assert_eq!(fixture.issued(), 6);
}

#[test]
fn shorter_lifetimes_than_requested_are_refreshed_at_four_fifths_of_them() {
    let mut fixture = fixture(1);
    fixture.server.lock().unwrap().lifetime = 1000;
    fixture.put_pod("web", "milan");

    fixture.sides.simulation.pass(Duration::from_secs(780));
    assert_eq!(fixture.issued(), 2);
    fixture.sides.simulation.pass(Duration::from_secs(60));
    assert_eq!(fixture.issued(), 4);
    // Another process does not know the lifetime, and requests new tokens once.
    fixture.sides.simulation.crash(0);
    fixture.sides.pass();
    assert!(fixture.issued() <= 6);
    fixture.sides.simulation.pass(Duration::from_secs(700));
    assert!(fixture.issued() <= 6);
}

#[test]
fn a_secret_is_removed_with_its_pod_and_replaced_for_a_new_one() {
    let mut fixture = fixture(1);
    fixture.put_pod("web", "milan");
    let first = fixture.uid("web");
    fixture.sides.remove::<Pod>("web");
    fixture.sides.put_in_shop::<Pod>("web", pod("", "milan"));
    fixture.sides.pass();
    let second = fixture.uid("web");
    assert_ne!(first, second);
    let secret = fixture.sides.remote::<Secret>("web-token");
    assert_eq!(
        secret["metadata"]["annotations"]["offloading.liqo.io/service-account-for-pod-uid"],
        second
    );

    fixture.sides.remove::<Pod>("web");
    fixture.sides.pass();
    assert_eq!(fixture.sides.remote::<Secret>("web-token"), Value::Null);
    fixture.sides.assert_stable();
}

#[test]
fn a_pod_without_tokens_has_no_secret() {
    let mut fixture = fixture(1);
    let mut object = pod("", "milan");
    object["metadata"]["annotations"] = json!({"liqo.io/api-server-support": "disabled"});
    fixture.sides.put_in_shop::<Pod>("web", object);
    fixture.sides.pass();

    assert_eq!(fixture.sides.writes(), Vec::<String>::new());
    fixture.sides.assert_settled();
}

#[test]
fn secrets_are_removed_when_the_namespace_is_no_longer_offloaded() {
    let mut fixture = fixture(1);
    fixture.put_pod("web", "milan");
    fixture
        .sides
        .put_map(&json!({}), &json!({"shop": "Accepted"}));
    fixture.sides.pass();

    assert_eq!(fixture.sides.remote::<Secret>("web-token"), Value::Null);
    fixture.sides.assert_stable();
}

#[test]
fn other_secrets_of_the_provider_are_not_changed() {
    let mut fixture = fixture(1);
    let marked = |node: &str| {
        json!({"metadata": {"labels": {
        "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": node}}})
    };
    fixture
        .sides
        .put_remote::<Secret>("web-token", json!({"data": {"a": "AAE="}}));
    fixture
        .sides
        .put_remote::<Secret>("api-token", marked("milan-2"));
    fixture.sides.put_remote::<Secret>("stale", marked("milan"));
    fixture.put_pod("web", "milan");
    fixture.put_pod("api", "milan");

    assert_eq!(
        fixture.sides.remote::<Secret>("web-token")["data"],
        json!({"a": "AAE="})
    );
    assert_eq!(
        fixture.sides.remote::<Secret>("api-token")["data"],
        Value::Null
    );
    assert_eq!(fixture.sides.remote::<Secret>("stale"), Value::Null);
    let events = fixture.sides.events();
    let of = |name: &str| {
        events
            .iter()
            .filter(|it| it.starts_with(&format!("FailedSATokensReflection Pod/{name}")))
            .count()
    };
    assert!(of("web") > 0, "{events:?}");
    assert_eq!(of("api"), 0, "{events:?}");

    // The virtual kubelet of the other node removes its Secret.
    fixture
        .sides
        .simulation
        .cluster(&milan())
        .remove::<Secret>(&remote("api-token"));
    fixture.sides.simulation.pass(Duration::from_secs(70));
    assert!(fixture.sides.remote::<Secret>("api-token")["data"].is_object());
}

#[test]
fn a_refused_request_for_a_token_is_published_and_repeated() {
    let mut fixture = fixture(1);
    fixture.server.lock().unwrap().is_refusing = true;
    fixture.put_pod("web", "milan");
    let event = "FailedSATokensReflection Pod/web: tokens are not reflected to cluster milan: the request for a token is refused: no";
    assert!(
        fixture.sides.events().contains(&event.to_owned()),
        "{:?}",
        fixture.sides.events()
    );

    fixture.server.lock().unwrap().is_refusing = false;
    fixture.sides.simulation.pass(Duration::from_secs(60));
    assert!(fixture.sides.remote::<Secret>("web-token").is_object());
}

#[test]
fn a_secret_is_written_after_partitions_and_crashes() {
    for seed in 0..30 {
        let mut fixture = fixture(seed);
        fixture.sides.simulation.partition(&milan());
        fixture.put_pod("web", "milan");
        fixture.sides.simulation.crash(0);
        fixture.sides.simulation.heal(&milan());
        fixture.sides.simulation.pass(Duration::from_millis(seed));
        fixture.sides.simulation.crash(0);
        fixture.sides.simulation.pass(Duration::from_secs(120));

        let uid = fixture.uid("web");
        let secret = fixture.sides.remote::<Secret>("web-token");
        assert_eq!(
            secret["metadata"]["annotations"]["offloading.liqo.io/service-account-for-pod-uid"],
            uid
        );
        assert!(fixture.issued() <= 4, "{}", fixture.issued());
    }
}

#[test]
fn a_pod_waits_until_its_tokens_and_the_root_ca_exist_at_the_provider() {
    let mut fixture = fixture(1);
    let marked = json!({"metadata": {"labels": {
        "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"}}});
    fixture.server.lock().unwrap().is_refusing = true;
    let mut object = pod("", "milan");
    object["spec"]["volumes"] = json!([{"name": "api", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}]);
    fixture.sides.put_in_shop::<Pod>("web", object);
    fixture.sides.pass();
    let missing = |fixture: &Fixture| fixture.server.lock().unwrap().missing.clone();
    assert_eq!(missing(&fixture), [Awaited::Tokens, Awaited::RootCa]);

    // Another object with the name of the root CA is none.
    fixture
        .sides
        .put_remote::<ConfigMap>("kube-root-ca.crt.rome", json!({"data": {}}));
    fixture.sides.pass();
    assert_eq!(missing(&fixture), [Awaited::Tokens, Awaited::RootCa]);
    fixture
        .sides
        .put_remote::<ConfigMap>("kube-root-ca.crt.rome", marked);
    fixture.sides.pass();
    assert_eq!(missing(&fixture), [Awaited::Tokens]);
    fixture.server.lock().unwrap().is_refusing = false;
    fixture.sides.simulation.pass(Duration::from_secs(60));
    assert_eq!(missing(&fixture), []);
    let waiting = fixture.server.lock().unwrap().waiting.clone();
    assert!(waiting.contains(&Waiting::Namespace("shop-rome".to_owned())));
    assert!(waiting.contains(&Waiting::Pod(Key::new("shop-rome", "web"))));
}

#[test]
fn a_provider_that_changes_the_expiration_causes_few_tokens() {
    let mut fixture = fixture(1);
    fixture.put_pod("web", "milan");
    for _ in 0..100 {
        let mut secret = fixture.sides.remote::<Secret>("web-token");
        let annotations = &mut secret["metadata"]["annotations"];
        annotations["offloading.liqo.io/service-account-expiration"] =
            "1970-01-01T00:00:00Z".into();
        fixture.sides.put_remote::<Secret>("web-token", secret);
        fixture.sides.simulation.pass(Duration::from_millis(500));
    }

    assert!((4..=6).contains(&fixture.issued()), "{}", fixture.issued());
}

#[test]
fn both_controllers_of_a_process_leave_the_objects_of_the_other_one_alone() {
    for seed in 0..20 {
        let mut fixture = hosted(seed, true);
        let secret =
            |labels: Value| json!({"metadata": {"labels": labels}, "data": {"key": "AAE="}});
        let marked = json!({
            "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
            "offloading.liqo.io/nodename": "milan-2"});
        fixture
            .sides
            .put_remote::<Secret>("api-token", secret(marked));
        fixture
            .sides
            .put_in_shop::<Secret>("web", secret(json!({})));
        fixture.put_pod("web", "milan");
        fixture.sides.simulation.crash(0);
        fixture.sides.pass();

        let mut writes = fixture.sides.writes();
        writes.sort();
        assert_eq!(writes, ["create Secret/web", "create Secret/web-token"]);
        assert_eq!(fixture.issued(), 2);
        assert!(fixture.sides.remote::<Secret>("api-token").is_object());
        fixture.sides.remove::<Pod>("web");
        fixture.sides.remove::<Secret>("web");
        fixture.sides.pass();
        assert_eq!(fixture.sides.remote::<Secret>("web"), Value::Null);
        assert_eq!(fixture.sides.remote::<Secret>("web-token"), Value::Null);
        fixture.sides.assert_settled();
    }
}

#[test]
fn another_process_requests_no_tokens_while_the_secrets_are_listed() {
    for seed in 0..50 {
        let mut fixture = fixture(seed);
        fixture.put_pod("web", "milan");
        fixture.sides.simulation.crash(0);
        fixture.sides.pass();

        assert_eq!(fixture.issued(), 2, "seed {seed}");
    }
}
