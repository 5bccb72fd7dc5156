//! Ephemeral containers and resizes of pods that exist.

use super::Side;
use super::side::{MOMENT, key, spec};
use control_api::ShadowPod;
use control_runtime::simulation::Sent;
use control_runtime::{Cluster, Request, Write};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

const APPLIES: &str = "liqo.io/applies-changes";
const REFUSED: &str = "liqo.io/change-refused";

/// Longer than the time after which a refused change is sent again.
const RETRY: Duration = Duration::from_secs(70);

/// Returns a provider with the running pod `a` of 1 CPU.
fn milan() -> Side {
    started(Side::new(11))
}

fn started(mut milan: Side) -> Side {
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    assert_eq!(milan.phase("a"), "Running");
    milan
}

fn resize(milan: &mut Side, name: &str, cpu: &str) {
    milan.edit::<ShadowPod>(&key(name), |it| it["spec"]["pod"] = spec(cpu));
}

fn debug(milan: &mut Side, containers: &Value) {
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["spec"]["pod"]["ephemeralContainers"] = containers.clone();
    });
}

/// Returns the writes of a subresource of pods that reached the API server.
fn sent(milan: &Side, subresource: &str) -> Vec<Write> {
    let of = |sent: &Sent| match &sent.request {
        Request::Write(write) if write.subresource == Some(subresource) => Some(write.clone()),
        Request::Write(_) | Request::Read(_) | Request::Probe(_) => None,
    };
    let log = milan.simulation.log().iter();
    let of_pods = log.filter_map(of);
    of_pods
        .filter(|it| it.object.resource.kind == "Pod")
        .collect()
}

fn cpu(milan: &mut Side, name: &str) -> Value {
    milan.pod(name).unwrap()["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
}

fn annotation(milan: &mut Side, name: &str) -> Value {
    milan.pod("a").unwrap()["metadata"]["annotations"][name].clone()
}

fn has_event(milan: &Side, part: &str) -> bool {
    let events = milan.events("a");
    let mut updates = events
        .iter()
        .filter(|it| it.starts_with("FailedUpdatePod: "));
    updates.any(|it| it.contains(part))
}

#[test]
fn an_ephemeral_container_reaches_the_pod_once() {
    let mut milan = milan();
    let uid = milan.pod("a").unwrap()["metadata"]["uid"].clone();
    for (containers, count) in [
        (json!([{"name": "x", "image": "sh:1"}]), 1),
        (
            json!([{"name": "x", "image": "sh:1"}, {"name": "y", "image": "sh:1"}]),
            2,
        ),
    ] {
        debug(&mut milan, &containers);
        milan.run(MOMENT);

        assert_eq!(
            milan.pod("a").unwrap()["spec"]["ephemeralContainers"],
            containers
        );
        let sent = sent(&milan, "ephemeralcontainers");
        assert_eq!(sent.len(), count);
        assert_eq!(json!(sent[0].uid), uid);
    }

    assert_eq!(annotation(&mut milan, APPLIES), "true");
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
    assert!(sent(&milan, "resize").is_empty());
    assert!(milan.replanned().is_empty());
    assert!(milan.simulation.redundant().is_empty());
}

#[test]
fn a_resize_within_the_quota_is_sent_once_and_counts() {
    let mut milan = milan();
    resize(&mut milan, "a", "3");
    milan.run(MOMENT);
    milan.request("b", 2, "1500m");
    milan.run(MOMENT);

    assert_eq!(cpu(&mut milan, "a"), "3");
    assert_eq!(milan.pods(), ["a"]);
    let sent = sent(&milan, "resize");
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].server_timeout, Some(Duration::from_secs(4)));
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
    assert!(milan.replanned().is_empty());
    assert!(milan.simulation.redundant().is_empty());

    resize(&mut milan, "a", "2500m");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b"], "the smaller pod leaves more");
}

#[test]
fn a_resize_beyond_the_quota_is_reported_and_made_once_it_fits() {
    let mut milan = milan();
    milan.request("b", 2, "2");
    milan.run(MOMENT);
    resize(&mut milan, "a", "3");
    milan.run(MOMENT);

    assert_eq!(cpu(&mut milan, "a"), "1");
    assert!(sent(&milan, "resize").is_empty());
    let reason = "exceeded quota: cpu, requested 3, used 2, limited 4, available 2";
    assert!(has_event(&milan, reason), "{:?}", milan.events("a"));
    let refused = annotation(&mut milan, REFUSED);
    assert!(refused.as_str().unwrap().starts_with(reason), "{refused}");

    milan.remove_both("b");
    milan.run(RETRY);
    assert_eq!(cpu(&mut milan, "a"), "3");
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_cordoned_quota_permits_less_and_not_more() {
    let mut milan = milan();
    milan.edit_quota(|it| it["spec"]["cordoned"] = json!(true));
    milan.run(MOMENT);
    resize(&mut milan, "a", "2");
    milan.run(MOMENT);
    assert_eq!(cpu(&mut milan, "a"), "1");
    assert!(has_event(&milan, "user is cordoned"));

    resize(&mut milan, "a", "500m");
    milan.run(MOMENT);
    assert_eq!(cpu(&mut milan, "a"), "500m");
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
}

#[test]
fn without_enforcement_no_quota_limits_a_resize() {
    let mut milan = started(Side::with_enforcement(11, false));
    resize(&mut milan, "a", "9");
    milan.run(MOMENT);

    assert_eq!(cpu(&mut milan, "a"), "9");
}

#[test]
fn a_container_that_the_provider_has_added_counts() {
    let mut milan = milan();
    milan.edit::<Pod>(&key("a"), |pod| {
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(json!({"name": "mesh", "resources": {"requests": {"cpu": "2"}}}));
    });
    resize(&mut milan, "a", "3");
    milan.run(MOMENT);

    assert_eq!(cpu(&mut milan, "a"), "1");
    assert!(has_event(&milan, "cpu, requested 5, used 0"));
}

/// The request stays, so only the limit would let the pod use more.
#[test]
fn a_limit_that_hard_enforcement_does_not_permit_is_refused() {
    let mut milan = Side::new(11);
    milan.edit_quota(|it| {
        it["spec"]["limitsEnforcement"] = json!("Hard");
        it["spec"]["resources"]["memory"] = json!("8Gi");
    });
    let amounts = json!({"cpu": "1", "memory": "1Gi"});
    let equal = json!({"requests": amounts, "limits": amounts});
    let set = |milan: &mut Side, resources: &Value| {
        milan.edit::<ShadowPod>(&key("a"), |it| {
            it["spec"]["pod"]["containers"][0]["resources"] = resources.clone();
        });
    };
    milan.request("a", 1, "1");
    set(&mut milan, &equal);
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    let mut unequal = equal.clone();
    unequal["limits"]["cpu"] = json!("9");
    set(&mut milan, &unequal);
    milan.run(MOMENT);

    assert!(sent(&milan, "resize").is_empty());
    assert!(has_event(
        &milan,
        "limit and request of spec.pod.containers[c].resources.cpu differ"
    ));
}

#[test]
fn an_ephemeral_container_that_the_policy_does_not_permit_is_reported() {
    let mut milan = milan();
    let privileged = json!([{
        "name": "x", "image": "sh:1", "securityContext": {"privileged": true},
    }]);
    debug(&mut milan, &privileged);
    milan.run(MOMENT);

    assert!(sent(&milan, "ephemeralcontainers").is_empty());
    assert!(has_event(&milan, "violates Pod Security `baseline`"));
    let refused = annotation(&mut milan, REFUSED);
    assert!(
        refused.as_str().unwrap().contains("privileged"),
        "{refused}"
    );

    milan.put_policy("rome", &json!({"podSecurity": "privileged"}));
    milan.run(RETRY);
    assert_eq!(
        milan.pod("a").unwrap()["spec"]["ephemeralContainers"],
        privileged
    );
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
}

#[test]
fn a_refusal_of_the_api_server_is_reported_and_the_change_repeated_after_a_minute() {
    let mut milan = milan();
    milan
        .simulation
        .local()
        .refuse_right(Some(("apply", "pods")), false);
    resize(&mut milan, "a", "2");
    debug(&mut milan, &json!([{"name": "x", "image": "sh:1"}]));
    milan.run(Duration::from_secs(50));

    let reason = "the API server refuses pods/";
    assert!(has_event(&milan, reason), "{:?}", milan.events("a"));
    let refused = annotation(&mut milan, REFUSED);
    for subresource in ["ephemeralcontainers", "resize"] {
        let refused = refused.as_str().unwrap();
        assert!(
            refused.contains(&format!("{reason}{subresource}: ")),
            "{refused}"
        );
        assert_eq!(sent(&milan, subresource).len(), 1, "{subresource}");
    }
    milan.request("b", 2, "3");
    milan.run(Duration::from_secs(5));
    assert_eq!(milan.pods(), ["a", "b"], "a refused resize holds no quota");

    milan.remove_both("b");
    milan.simulation.local().refuse_right(None, false);
    milan.run(RETRY);
    assert_eq!(cpu(&mut milan, "a"), "2");
    assert!(milan.pod("a").unwrap()["spec"]["ephemeralContainers"].is_array());
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_consumer_cannot_set_the_annotations_of_changes() {
    let mut milan = milan();
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["annotations"] = json!({APPLIES: "false", REFUSED: "no"});
    });
    milan.run(MOMENT);
    assert_eq!(annotation(&mut milan, APPLIES), "true");
    assert_eq!(annotation(&mut milan, REFUSED), Value::Null);

    milan.edit::<ShadowPod>(&key("a"), |it| it["metadata"]["annotations"] = json!({}));
    milan.run(MOMENT);
    assert_eq!(annotation(&mut milan, APPLIES), "true");
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_pod_that_has_ended_is_not_changed() {
    let mut milan = milan();
    milan.set_phase("a", "Succeeded");
    milan.run(MOMENT);
    resize(&mut milan, "a", "2");
    debug(&mut milan, &json!([{"name": "x", "image": "sh:1"}]));
    milan.run(RETRY);

    assert!(sent(&milan, "resize").is_empty());
    assert!(sent(&milan, "ephemeralcontainers").is_empty());
}

/// A request of another pod waits for the CPUs that the resize may have taken.
#[test]
fn a_resize_with_unknown_outcome_counts() {
    let mut reads = 0;
    for seed in 0..60 {
        let mut milan = started(Side::new(seed));
        resize(&mut milan, "a", "3");
        milan.run(Duration::from_millis(seed % 8));
        milan.simulation.swap_credentials(&Cluster::Local);
        resize(&mut milan, "a", "1");
        milan.request("b", 2, "3");
        milan.run_within_quota(300);
        milan.run(Duration::from_secs(60));

        assert_eq!(cpu(&mut milan, "a"), "1", "seed {seed}");
        assert_eq!(milan.pods(), ["a", "b"], "seed {seed}");
        reads += milan.reads::<Pod>();
    }

    assert!(reads > 0, "no outcome was unknown");
}

#[test]
fn a_lost_resize_is_made_after_its_outcome_is_known() {
    for seed in 0..40 {
        let mut milan = started(Side::new(seed));
        resize(&mut milan, "a", "3");
        debug(&mut milan, &json!([{"name": "x", "image": "sh:1"}]));
        milan.run(Duration::from_millis(seed % 10));
        milan.simulation.swap_credentials(&Cluster::Local);
        milan.run(Duration::from_secs(60));

        assert_eq!(cpu(&mut milan, "a"), "3", "seed {seed}");
        let containers = &milan.pod("a").unwrap()["spec"]["ephemeralContainers"];
        assert_eq!(containers.as_array().unwrap().len(), 1, "seed {seed}");
        assert_eq!(annotation(&mut milan, REFUSED), Value::Null, "seed {seed}");
        assert!(milan.replanned().is_empty(), "seed {seed}");
    }
}

#[test]
fn a_new_leader_completes_changes_and_keeps_refusals() {
    for seed in 0..40 {
        let mut milan = started(Side::new(seed));
        resize(&mut milan, "a", "3");
        debug(&mut milan, &json!([{"name": "x", "image": "sh:1"}]));
        milan.run(Duration::from_millis(seed % 10));
        milan.simulation.hand_over(1);
        milan.run(Duration::from_secs(30));
        assert_eq!(cpu(&mut milan, "a"), "3", "seed {seed}");
        let containers = milan.pod("a").unwrap()["spec"]["ephemeralContainers"].clone();
        assert_eq!(containers.as_array().unwrap().len(), 1, "seed {seed}");
        let repeated = repeated_by_new_leader(&milan, 1);

        resize(&mut milan, "a", "5");
        milan.run(MOMENT);
        let before = sent(&milan, "resize").len();
        milan.simulation.hand_over(0);
        milan.run(MOMENT);
        assert!(annotation(&mut milan, REFUSED).is_string(), "seed {seed}");
        assert_eq!(sent(&milan, "resize").len(), before, "seed {seed}");
        let redundant = milan.simulation.redundant();
        assert_eq!(redundant.len(), repeated, "seed {seed}: {redundant:?}");
    }
}

/// Returns the number of changes without effect. The new leader sends each change once at most that it has not observed as made
/// by the former leader.
#[track_caller]
fn repeated_by_new_leader(milan: &Side, leader: usize) -> usize {
    let redundant = milan.simulation.redundant();
    let is_of_leader = redundant.iter().all(|it| it.replica == leader);
    assert!(is_of_leader, "{redundant:?}");
    for subresource in ["resize", "ephemeralcontainers"] {
        let sent = sent(milan, subresource).len();
        assert!(sent <= 2, "{subresource}: one of each leader, not {sent}");
    }

    redundant.len()
}
