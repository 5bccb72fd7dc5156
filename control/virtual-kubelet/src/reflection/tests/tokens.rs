//! The controller of tokens with two clusters.

use super::issuing::{Issuing, Server, settings};
use super::side::{Connect, Sides, local, milan};
use crate::reflection::conflicts::Conflicts;
use crate::reflection::controller::ReflectionController;
use crate::reflection::tokens::awaited::{Awaited, Waiting};
use crate::reflection::tokens::controller::TokenController;
use control_runtime::Key;
use control_runtime::simulation::Simulation;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

struct Fixture {
    sides: Sides,
    server: Arc<Mutex<Server>>,
}

fn fixture(seed: u64) -> Fixture {
    hosted(seed, false)
}

/// Creates both clusters. The process that is the leader reflects other objects, too.
fn hosted(seed: u64, is_leader: bool) -> Fixture {
    let server = Server::new();
    let shared = Rc::new(RefCell::new(Arc::clone(&server)));
    let make = move || Issuing {
        controller: TokenController::new(settings()),
        server: Arc::clone(&shared.borrow()),
    };
    let simulation = Simulation::new(seed).host(|| Connect).host(make);
    let simulation = match is_leader {
        true => simulation
            .host(|| ReflectionController::new(super::side::settings(), Conflicts::default())),
        false => simulation,
    };
    Fixture {
        sides: Sides::with(simulation),
        server,
    }
}

fn pod(uid: &str, node: &str) -> Value {
    let volume = |name: &str, audience: Option<&str>| {
        let token = json!({"path": "token", "audience": audience});
        json!({"name": name, "projected": {"sources": [{"serviceAccountToken": token}]}})
    };
    let volumes = [
        volume("a", None),
        volume("b", Some("vault")),
        volume("c", None),
    ];
    json!({"metadata": {"uid": uid}, "spec": {
        "nodeName": node, "serviceAccountName": "web", "containers": [], "volumes": volumes}})
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
        let [a, b, c] = ["a", "b", "c"].map(|it| &secret["data"][format!("{it}-3c469e")]);
        assert!(a.is_string());
        assert_eq!(a, c);
        assert_ne!(a, b);
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
    fixture.sides.end_pod("web");
    fixture.sides.put_in_shop::<Pod>("web", pod("", "milan"));
    fixture.sides.pass();
    let second = fixture.uid("web");
    assert_ne!(first, second);
    let secret = fixture.sides.remote::<Secret>("web-token");
    assert_eq!(
        secret["metadata"]["annotations"]["offloading.liqo.io/service-account-for-pod-uid"],
        second
    );

    fixture.sides.end_pod("web");
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
    let of_web = |it: &String| it.starts_with("FailedSATokensReflection Pod/web");
    assert!(events.iter().any(of_web), "{events:?}");
}

#[test]
fn a_secret_of_a_removed_virtual_node_makes_way_for_a_pod_of_the_name() {
    for seed in 0..20 {
        let mut fixture = fixture(seed);
        let labels = json!({
            "offloading.liqo.io/origin": "rome",
            "offloading.liqo.io/destination": "milan",
            "offloading.liqo.io/nodename": "milan-2",
        });
        let abandoned = json!({"metadata": {"labels": labels}});
        fixture
            .sides
            .put_remote::<Secret>("web-token", abandoned.clone());
        fixture.sides.put_remote::<Secret>("api-token", abandoned);
        fixture.put_pod("web", "milan");
        fixture.sides.simulation.pass(Duration::from_secs(10));

        let secret = fixture.sides.remote::<Secret>("web-token");
        assert!(secret["data"].is_object(), "{secret}");
        assert_eq!(
            secret["metadata"]["labels"]["offloading.liqo.io/nodename"],
            "milan"
        );
        // No pod of this node has that name.
        let other = fixture.sides.remote::<Secret>("api-token");
        assert_eq!(other["data"], Value::Null);
        assert!(fixture.sides.events().is_empty());
    }
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
    let root_ca = json!({"name": "api", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}});
    object["spec"]["volumes"]
        .as_array_mut()
        .unwrap()
        .push(root_ca);
    fixture.sides.put_in_shop::<Pod>("web", object);
    fixture.sides.pass();
    // The Secret of an earlier pod with the name.
    let labels = json!({
        "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan",
        "offloading.liqo.io/nodename": "milan"});
    let annotations = json!({"offloading.liqo.io/service-account-for-pod-name": "web"});
    let metadata = json!({"labels": labels, "annotations": annotations});
    fixture
        .sides
        .put_remote::<Secret>("web-token", json!({"metadata": metadata}));
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
        fixture.sides.end_pod("web");
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
