//! Events of the provider, and the statuses of pods that it refuses.

use super::*;
use k8s_openapi::api::core::v1::Event;

const EXCEEDED: &str = "exceeded the quota of cpu: 3 requested, 2 granted";

/// Returns `rome` with a ShadowPod that has no remote pod yet.
fn rome_without_remote(seed: u64) -> Side {
    let mut rome = Side::new(seed);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome
}

/// Returns an Event of the provider about the ShadowPod `web`.
fn warning(rome: &mut Side, name: &str, message: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop-rome"},
        "involvedObject": {
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "ShadowPod",
            "namespace": "shop-rome",
            "name": "web",
            "uid": rome.shadow("web")["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "FailedCreatePod",
        "message": message,
        "source": {"component": "shadow-pod"},
        "count": 1,
        "firstTimestamp": "2026-11-21T07:20:00Z",
        "lastTimestamp": "2026-11-21T07:20:00Z",
    })
}

fn refuse(rome: &mut Side, message: &str) {
    let event = warning(rome, "web.1", message);
    rome.provider().put::<Event>(event);
    rome.pass();
}

/// Returns the Events of this cluster.
fn events(rome: &mut Side) -> Vec<Value> {
    let events = rome.simulation.local().all::<Event>().into_iter();
    events.cloned().collect()
}

#[test]
fn a_pod_that_the_provider_does_not_create_shows_why_until_it_runs() {
    let mut rome = rome_without_remote(1);
    assert_eq!(rome.pod("web")["status"]["reason"], Value::Null);
    refuse(&mut rome, EXCEEDED);

    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Pending");
    assert_eq!(status["reason"], "OffloadingBackOff");
    let expected = format!("the provider does not create the pod: {EXCEEDED}");
    assert_eq!(status["message"], expected);
    let [event] = &events(&mut rome)[..] else {
        panic!("one Event");
    };
    let uid = rome.pod("web")["metadata"]["uid"].clone();
    let expected = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": uid, "fieldPath": null});
    assert_eq!(event["involvedObject"], expected);
    assert_eq!(event["metadata"]["name"], "web.1");
    assert_eq!(
        event["metadata"]["labels"],
        json!({"offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"})
    );
    for (field, expected) in [
        ("type", json!("Warning")),
        ("reason", json!("FailedCreatePod")),
        ("message", json!(EXCEEDED)),
        ("source", json!({"component": "shadow-pod (remote)"})),
        ("count", json!(1)),
        ("lastTimestamp", json!("2026-11-21T07:20:00Z")),
    ] {
        assert_eq!(event[field], expected);
    }

    // The Event of the provider stays for an hour.
    rome.put_remote("web", &running("10.244.1.7"));
    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Running");
    for field in ["reason", "message"] {
        assert_eq!(status[field], Value::Null);
    }
    assert_eq!(rome.writes::<Event>(), 1);
    assert_eq!(rome.writes::<Pod>(), 3, "the label, and two statuses");
    assert!(rome.redundant().is_empty());
}

#[test]
fn the_status_stays_when_the_event_of_the_provider_expires() {
    let mut rome = rome_without_remote(2);
    refuse(&mut rome, EXCEEDED);
    let before = rome.pod("web");
    rome.provider()
        .remove::<Event>(&Key::new("shop-rome", "web.1"));
    rome.simulation.pass(Duration::from_secs(60));

    assert_eq!(rome.pod("web"), before);
}

#[test]
fn a_pod_that_has_started_says_why_it_does_not_run() {
    let mut rome = rome(3);
    rome.remove_remote("web");
    refuse(&mut rome, EXCEEDED);

    let status = rome.pod("web")["status"].clone();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&json!("Running"), &json!("RemotePodLost"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with(EXCEEDED), "{message}");
    assert_eq!(events(&mut rome).len(), 1);
}

#[test]
fn an_event_follows_that_of_the_provider_at_most_once_in_ten_seconds() {
    let mut rome = rome_without_remote(4);
    for count in 1..=20 {
        let mut event = warning(&mut rome, "web.1", EXCEEDED);
        event["count"] = json!(count);
        event["lastTimestamp"] = json!(format!("2026-11-21T07:20:{count:02}Z"));
        rome.provider().put::<Event>(event);
        rome.simulation.pass(Duration::from_secs(1));
    }
    assert!(rome.writes::<Event>() <= 3, "{}", rome.writes::<Event>());

    rome.simulation.pass(Duration::from_secs(10));
    let [event] = &events(&mut rome)[..] else {
        panic!("one Event");
    };
    assert_eq!(event["count"], 20);
    assert_eq!(event["firstTimestamp"], "2026-11-21T07:20:00Z");
    assert_eq!(event["lastTimestamp"], "2026-11-21T07:20:20Z");
}

#[test]
fn events_about_other_objects_are_not_reflected() {
    let mut rome = rome_without_remote(5);
    let changes: [fn(&mut Value); 5] = [
        |event| event["involvedObject"]["kind"] = json!("Pod"),
        |event| event["involvedObject"]["kind"] = json!("Node"),
        |event| event["involvedObject"]["uid"] = json!("of-an-earlier-one"),
        |event| event["involvedObject"]["name"] = json!("books"),
        |event| event["metadata"]["namespace"] = json!("shop-turin"),
    ];
    rome.provider().put_namespace("shop-turin");
    for (number, change) in changes.into_iter().enumerate() {
        let mut event = warning(&mut rome, &format!("web.{number}"), EXCEEDED);
        change(&mut event);
        rome.provider().put::<Event>(event);
    }
    let theirs = json!({"offloading.liqo.io/nodename": "milan-2"});
    rome.provider().put::<ShadowPod>(json!({
        "metadata": {"name": "books", "namespace": "shop-rome", "labels": theirs}, "spec": {},
    }));
    rome.pass();

    assert_eq!(rome.writes::<Event>(), 0);
    assert_eq!(rome.pod("web")["status"]["reason"], Value::Null);
}

#[test]
fn excluded_and_reflected_events_and_invalid_names_are_not_reflected() {
    let mut rome = rome_without_remote(12);
    let changes: [fn(&mut Value); 3] = [
        // As the one of a cluster that the provider itself offloads to.
        |event| event["metadata"]["labels"] = json!({"offloading.liqo.io/origin": "milan"}),
        |event| event["metadata"]["annotations"] = json!({"liqo.io/skip-reflection": "true"}),
        |event| event["metadata"]["name"] = json!("../web"),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut event = warning(&mut rome, &format!("web.{number}"), EXCEEDED);
        change(&mut event);
        rome.provider().put::<Event>(event);
    }
    rome.pass();

    assert_eq!(rome.writes::<Event>(), 0);
}

#[test]
fn a_hostile_provider_creates_few_events() {
    let mut rome = rome_without_remote(6);
    for number in 0..100 {
        let message = format!("\u{1b}[31m{}", "a".repeat(100_000));
        let mut event = warning(&mut rome, &format!("web.{number}"), &message);
        event["reason"] = json!("A".repeat(10_000));
        event["source"]["component"] = json!("c".repeat(10_000));
        rome.provider().put::<Event>(event);
    }
    rome.simulation.pass(Duration::from_secs(60));

    let events = events(&mut rome);
    assert_eq!(events.len(), 64);
    // Each of the two replicas counts those that it has dropped.
    let dropped = rome.drops.dropped("object");
    assert!((36..=72).contains(&dropped), "{dropped}");
    for event in events {
        assert!(event.to_string().len() < 2048);
        assert!(event["message"].as_str().unwrap().starts_with(" [31m"));
        let name = event["metadata"]["name"].as_str().unwrap();
        assert!(name.starts_with("web."), "{name}");
    }
    let written = 64 + rome.reads::<Event>();
    assert_eq!(rome.writes::<Event>(), written);
}

#[test]
fn a_refused_event_is_written_again() {
    let mut rome = rome_without_remote(7);
    let refused = Some(("create", "events"));
    rome.simulation.local().refuse_right(refused, false);
    refuse(&mut rome, EXCEEDED);
    assert_eq!(events(&mut rome), [Value::Null; 0]);
    assert_eq!(rome.pod("web")["status"]["reason"], "OffloadingBackOff");

    rome.simulation.local().refuse_right(None, false);
    rome.simulation.pass(Duration::from_secs(60));
    assert_eq!(events(&mut rome).len(), 1);
}

#[test]
fn events_are_not_followed_if_their_reflection_is_off() {
    let mut settings = settings();
    settings.reflects_events = false;
    let mut rome = Side::with_settings(8, settings);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    refuse(&mut rome, EXCEEDED);

    assert_eq!(rome.writes::<Event>(), 0);
    assert_eq!(rome.pod("web")["status"]["reason"], Value::Null);
}

/// Returns an Event of the provider about the remote pod `web`.
fn normal(rome: &mut Side, name: &str, reason: &str) -> Value {
    let pod = rome.provider().get::<Pod>(&Key::new("shop-rome", "web"));
    let uid = pod.unwrap()["metadata"]["uid"].clone();
    let mut event = warning(rome, name, "started");
    event["involvedObject"] = json!({
        "apiVersion": "v1", "kind": "Pod", "namespace": "shop-rome", "name": "web", "uid": uid,
        "fieldPath": "spec.containers{web}",
    });
    event["type"] = json!("Normal");
    event["reason"] = json!(reason);
    event
}

#[test]
fn each_event_of_a_healthy_pod_costs_one_request() {
    let mut rome = rome(9);
    let reasons = ["Scheduled", "Pulled", "Created", "Started"];
    for reason in reasons {
        let event = normal(&mut rome, &format!("web.{}", reason.to_lowercase()), reason);
        rome.provider().put::<Event>(event);
    }
    rome.pass();

    let events = events(&mut rome);
    assert_eq!(events.len(), 4);
    for event in &events {
        assert_eq!(event["type"], "Normal");
        assert_eq!(event["involvedObject"]["kind"], "Pod");
        assert_eq!(event["involvedObject"]["namespace"], "shop");
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{web}");
        assert_eq!(
            event["involvedObject"]["uid"],
            rome.pod("web")["metadata"]["uid"]
        );
    }
    assert_eq!(rome.writes::<Event>() - rome.reads::<Event>(), 4);
    assert!(rome.redundant().is_empty());
}

/// The provider observes a pod before the virtual kubelet does.
#[test]
fn an_event_that_precedes_its_pod_is_reflected() {
    let mut rome = rome_without_remote(10);
    let mut early = warning(&mut rome, "web.1", "assigned");
    early["involvedObject"] = json!({"kind": "Pod", "namespace": "shop-rome", "name": "web"});
    rome.provider().put::<Event>(early);
    rome.pass();
    assert_eq!(events(&mut rome), [Value::Null; 0]);

    rome.put_remote("web", &running("10.244.1.7"));

    assert_eq!(events(&mut rome).len(), 1);
    assert_eq!(rome.writes::<Event>(), 1);
}

#[test]
fn another_process_writes_no_event_again_and_deletes_none() {
    for seed in 0..20 {
        let mut rome = rome_without_remote(seed);
        refuse(&mut rome, EXCEEDED);
        let before = rome.writes::<Event>();
        rome.simulation.crash(0);
        rome.simulation.crash(1);
        rome.simulation.pass(Duration::from_secs(60));
        assert_eq!(rome.writes::<Event>(), before, "seed {seed}");

        let key = Key::new("shop-rome", "web.1");
        rome.provider().remove::<Event>(&key);
        rome.simulation.pass(Duration::from_secs(60));
        assert_eq!(events(&mut rome).len(), 1);
        assert_eq!(rome.writes::<Event>(), before, "seed {seed}");
    }
}

/// Whatever name the provider chooses.
#[test]
fn an_event_of_another_writer_is_not_changed() {
    let mut rome = rome_without_remote(11);
    rome.put::<Event>(json!({
        "metadata": {"name": "web.1", "namespace": "shop"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"},
        "reason": "Evicted", "message": "of this cluster",
    }));
    let before = events(&mut rome);
    for count in 1..4 {
        let mut event = warning(&mut rome, "web.1", EXCEEDED);
        event["count"] = json!(count);
        rome.provider().put::<Event>(event);
        rome.simulation.pass(Duration::from_secs(20));
    }

    assert_eq!(events(&mut rome), before);
    assert!(rome.writes::<Event>() <= 3, "{}", rome.writes::<Event>());
}

#[test]
fn a_refused_shadow_pod_is_shown_in_the_status_until_the_pod_runs() {
    let mut rome = Side::new(11);
    rome.put_map("Accepted");
    rome.provider()
        .refuse_right(Some(("create", "shadowpods")), false);
    rome.put_pod("web");
    rome.simulation.pass(Duration::from_secs(10));

    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["reason"], "OffloadingBackOff");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("the provider refuses the ShadowPod: "),
        "{message}"
    );

    rome.provider().refuse_right(None, false);
    rome.simulation.pass(Duration::from_secs(60));
    rome.put_remote("web", &running("10.244.1.7"));
    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Running");
    for field in ["reason", "message"] {
        assert_eq!(status[field], Value::Null);
    }
}

#[test]
fn a_provider_that_refuses_its_lists_is_named_until_the_pod_runs() {
    let mut rome = Side::new(12);
    let milan = Cluster::remote("milan");
    rome.simulation.partition(&milan);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    assert_eq!(rome.pod("web")["status"]["reason"], Value::Null);
    rome.simulation.pass(Duration::from_secs(120));

    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["reason"], "OffloadingBackOff");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("the request to the provider "),
        "{message}"
    );

    rome.simulation.heal(&milan);
    rome.simulation.pass(Duration::from_secs(60));
    rome.put_remote("web", &running("10.244.1.7"));
    assert_eq!(rome.pod("web")["status"]["phase"], "Running");
    assert_eq!(rome.pod("web")["status"]["message"], Value::Null);
}
