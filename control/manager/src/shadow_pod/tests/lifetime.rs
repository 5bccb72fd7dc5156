//! Creation, changes and end of pods.

use super::Side;
use super::side::{MOMENT, key, shadow_pod, spec};
use control_api::ShadowPod;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::time::Duration;

/// Returns a provider with the pod `a`.
fn milan() -> Side {
    let mut milan = Side::new(11);
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    milan
}

#[test]
fn a_pod_costs_one_creation_and_one_status_for_each_phase() {
    let mut milan = milan();
    let pod = milan.pod("a").unwrap();
    assert_eq!(pod["metadata"]["labels"]["liqo.io/managed-by"], "shadowpod");
    for phase in ["Pending", "Running", "Running", "Succeeded"] {
        milan.set_phase("a", phase);
        milan.run(MOMENT);
        assert_eq!(milan.phase("a"), phase);
    }

    assert_eq!(milan.requests::<Pod>(), 1);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    assert_eq!(milan.phase("a"), "Succeeded", "an end is final");
    assert_eq!(milan.requests::<ShadowPod>(), 3);
    assert_eq!(milan.events("a"), [""; 0]);
    assert!(milan.replanned().is_empty());
    assert!(milan.simulation.redundant().is_empty());
}

#[test]
fn a_deleted_pod_is_created_again_with_the_same_spec() {
    let mut milan = milan();
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    let before = milan.pod("a").unwrap();
    milan.remove::<Pod>("a");
    milan.run(MOMENT);

    let after = milan.pod("a").unwrap();
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"]);
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_pod_that_has_ended_is_not_created_again() {
    for phase in ["Succeeded", "Failed"] {
        let mut milan = milan();
        milan.set_phase("a", phase);
        milan.run(MOMENT);
        milan.remove::<Pod>("a");
        milan.run(MOMENT);

        assert_eq!(milan.pods(), [""; 0]);
        assert_eq!(milan.phase("a"), phase);
    }
}

/// Kubelets end pods that are deleted with a terminal phase, for example when a node is drained.
#[test]
fn a_drained_pod_is_created_again() {
    let mut milan = milan();
    milan.set_phase("a", "Running");
    milan.edit::<Pod>(&key("a"), |pod| {
        pod["metadata"]["finalizers"] = json!(["example.com/kubelet"]);
    });
    milan.run(MOMENT);
    milan.remove::<Pod>("a");
    milan.set_phase("a", "Succeeded");
    milan.run(MOMENT);
    assert_eq!(milan.phase("a"), "Running");

    milan.edit::<Pod>(&key("a"), |pod| pod["metadata"]["finalizers"] = json!([]));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    assert_eq!(
        milan.pod("a").unwrap()["metadata"]["deletionTimestamp"],
        Value::Null
    );
}

#[test]
fn labels_and_annotations_follow_and_those_of_others_stay() {
    let mut milan = milan();
    milan.edit::<Pod>(&key("a"), |pod| {
        pod["metadata"]["annotations"] = json!({"cni.example.com/address": "10.0.0.1"});
        pod["metadata"]["labels"]["mesh.example.com/injected"] = json!("true");
    });
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["labels"]["app"] = json!("shop");
        it["metadata"]["annotations"] = json!({"note": "1"});
    });
    milan.run(MOMENT);
    let metadata = milan.pod("a").unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"]["app"], "shop");
    assert_eq!(metadata["labels"]["mesh.example.com/injected"], "true");
    let expected = json!({
        "cni.example.com/address": "10.0.0.1", "liqo.io/applies-changes": "true", "note": "1",
    });
    assert_eq!(metadata["annotations"], expected);
    assert_eq!(milan.requests::<Pod>(), 2, "a creation and a patch");

    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("app");
        it["metadata"]["annotations"] = json!({});
    });
    milan.run(MOMENT);
    let metadata = milan.pod("a").unwrap()["metadata"].clone();
    assert_eq!(metadata["labels"]["app"], Value::Null);
    assert_eq!(
        metadata["annotations"],
        json!({"cni.example.com/address": "10.0.0.1", "liqo.io/applies-changes": "true"})
    );
    assert!(milan.replanned().is_empty());
    assert!(milan.simulation.redundant().is_empty());
}

#[test]
fn a_pod_that_is_being_deleted_and_fixed_annotations_are_not_changed() {
    let profile = "container.apparmor.security.beta.kubernetes.io/c";
    for seed in 0..20 {
        let mut milan = Side::new(seed);
        milan.request("a", 1, "1");
        milan.run(MOMENT);
        milan.edit::<ShadowPod>(&key("a"), |it| {
            it["metadata"]["annotations"] = json!({profile: "runtime/default"});
        });
        milan.run(MOMENT);
        milan.edit::<Pod>(&key("a"), |pod| {
            pod["metadata"]["finalizers"] = json!(["example.com/kubelet"]);
        });
        milan.remove::<Pod>("a");
        // The watches of pods and ShadowPods have no common order: a change that is observed before the deletion is followed.
        milan.run(MOMENT);
        milan.edit::<ShadowPod>(&key("a"), |it| {
            it["metadata"]["labels"]["app"] = json!("shop");
        });
        milan.run(MOMENT);

        assert_eq!(milan.requests::<Pod>(), 1, "a creation, seed {seed}");
    }
}

#[test]
fn a_pod_has_no_label_of_its_consumers_own_pod() {
    let mut milan = Side::new(1);
    let mut object = shadow_pod("a", 1, &spec("1"));
    object["metadata"]["labels"]["liqo.io/shadowPod"] = json!("true");
    object["metadata"]["labels"]["liqo.io/remote-unavailable"] = json!("true");
    milan.put::<ShadowPod>(object);
    milan.run(MOMENT);

    let pod = milan.pod("a").unwrap();
    assert_eq!(pod["spec"], spec("1"));
    let labels = pod["metadata"]["labels"].as_object().unwrap();
    let expected = [
        "liqo.io/creator-user",
        "liqo.io/managed-by",
        "offloading.liqo.io/destination",
        "offloading.liqo.io/origin",
    ];
    assert!(labels.keys().eq(expected), "{labels:?}");
    assert!(milan.replanned().is_empty());
}

#[test]
fn other_fields_of_an_existing_pod_stay() {
    let mut milan = milan();
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["spec"]["pod"]["containers"][0]["image"] = json!("other");
    });
    milan.run(MOMENT);

    let pod = milan.pod("a").unwrap();
    assert_eq!(pod["spec"], spec("1"));
    assert_eq!(milan.requests::<Pod>(), 1);
}

#[test]
fn a_pod_of_another_owner_is_never_touched() {
    for labels in [json!({}), json!({"liqo.io/managed-by": "shadowpod"})] {
        let mut milan = Side::new(5);
        let other = json!({"metadata": {"name": "a", "namespace": "demo-rome", "labels": labels},
            "spec": {"containers": []}});
        milan.put::<Pod>(other);
        let before = milan.pod("a");
        milan.request("a", 1, "1");
        milan.run(Duration::from_secs(10));

        assert_eq!(milan.pod("a"), before, "{labels}");
        let expected =
            "FailedCreatePod: another pod has this name: delete that pod, or use another name";
        assert_eq!(milan.events("a"), [expected]);
        assert_eq!(milan.phase("a"), Value::Null);

        milan.remove::<Pod>("a");
        milan.run(Duration::from_secs(120));
        assert_eq!(milan.pod("a").unwrap()["spec"], spec("1"));
    }
}

#[test]
fn a_pod_that_has_lost_its_label_gets_it_again() {
    let mut milan = milan();
    milan.edit::<Pod>(&key("a"), |pod| {
        pod["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("liqo.io/managed-by");
    });
    milan.run(Duration::from_secs(5));

    let pod = milan.pod("a").unwrap();
    assert_eq!(pod["metadata"]["labels"]["liqo.io/managed-by"], "shadowpod");
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_refusal_of_the_api_server_is_an_event_and_holds_no_quota() {
    let mut milan = Side::new(9);
    let right = ("create", "pods");
    milan.simulation.local().refuse_right(Some(right), false);
    milan.request("a", 1, "4");
    milan.run(MOMENT);
    let event = &milan.events("a")[0];
    assert!(
        event.starts_with("FailedCreatePod: the API server refuses the pod: "),
        "{event}"
    );

    milan.simulation.local().refuse_right(None, false);
    milan.request("b", 2, "4");
    milan.run(Duration::from_millis(100));
    assert_eq!(milan.pods(), ["b"], "`a` waits for its next attempt");
    milan.remove_both("b");
    milan.run(Duration::from_secs(120));
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_new_shadow_pod_inherits_no_failure_of_an_earlier_one() {
    let mut milan = Side::new(9);
    let right = ("create", "pods");
    milan.simulation.local().refuse_right(Some(right), false);
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    milan.remove::<ShadowPod>("a");
    milan.simulation.local().refuse_right(None, false);
    milan.run(MOMENT);
    let before = milan.simulation.events(0).len();
    assert!(before > 0);
    milan.request("a", 2, "1");
    milan.run(MOMENT);

    let new = &milan.simulation.events(0)[before..];
    assert!(new.is_empty(), "{new:?}");
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_large_pod_is_read_when_it_is_created() {
    let mut milan = Side::new(2);
    let mut large = spec("1");
    large["containers"][0]["env"] = json!([{"name": "X", "value": "x".repeat(900_000)}]);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &large));
    milan.run(MOMENT);

    assert_eq!(milan.pod("a").unwrap()["spec"], large);
    assert_eq!(milan.requests::<ShadowPod>(), 2, "each replica reads it");
}

#[test]
fn a_shadow_pod_that_is_being_deleted_gets_no_pod() {
    let mut milan = milan();
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["finalizers"] = json!(["example.com/wait"]);
        it["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:29:28Z");
    });
    milan.run(MOMENT);
    milan.remove::<Pod>("a");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), [""; 0]);
    assert!(milan.replanned().is_empty());
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_being_deleted() {
    let mut milan = Side::new(2);
    milan.edit::<k8s_openapi::api::core::v1::Namespace>(
        &control_runtime::Key::cluster("demo-rome"),
        |it| {
            it["metadata"]["finalizers"] = json!(["example.com/wait"]);
            it["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:29:28Z");
        },
    );
    milan.request("a", 1, "1");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), [""; 0]);
    assert_eq!(milan.events("a"), [""; 0], "no user can change it");
}

#[test]
fn faults_neither_lose_nor_double_pods() {
    for seed in 0..30 {
        let mut milan = Side::new(seed);
        for second in 0..8 {
            milan.request(&format!("p{second}"), second, "500m");
        }
        for leader in [1, 0, 1, 0] {
            milan.run(Duration::from_millis(4));
            milan.simulation.crash(leader);
            milan.run(Duration::from_millis(3));
            milan.simulation.hand_over(leader);
            milan.partition(Duration::from_millis(5));
        }
        milan.run(Duration::from_secs(300));

        assert_eq!(milan.pods().len(), 8, "seed {seed}");
        for name in milan.pods() {
            milan.set_phase(&name, "Running");
        }
        milan.run(Duration::from_secs(300));
        assert_eq!(milan.phase("p7"), "Running", "seed {seed}");
        assert!(milan.creations_have_a_time_limit());
        assert!(milan.simulation.redundant().is_empty(), "seed {seed}");
        assert!(milan.replanned().is_empty(), "seed {seed}");
    }
}
