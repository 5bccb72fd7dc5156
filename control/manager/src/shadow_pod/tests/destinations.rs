//! ShadowPods for other clusters, of a virtual kubelet with the kubeconfig for another provider.

use super::Side;
use super::side::{MOMENT, cluster_id, key, shadow_pod, spec};
use control_api::ShadowPod;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use std::time::Duration;

const DESTINATION: &str = "offloading.liqo.io/destination";

const REFUSED: &str = "FailedCreatePod: label offloading.liqo.io/destination is `turin`, but the ID of this cluster is \
                       `milan`: give the VirtualNode the kubeconfig for `turin`";

/// Creates a ShadowPod of `rome` with this destination, or without any.
fn request_for(milan: &mut Side, destination: Option<&str>) {
    let mut object = shadow_pod("a", 1, &spec("4"));
    match destination {
        Some(destination) => object["metadata"]["labels"][DESTINATION] = json!(destination),
        None => {
            let labels = object["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove(DESTINATION);
        }
    }
    milan.put::<ShadowPod>(object);
    milan.run(MOMENT);
}

fn set_destination(milan: &mut Side, destination: &str) {
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["labels"][DESTINATION] = json!(destination);
    });
    milan.run(MOMENT);
}

/// Returns a provider that does not know its ID yet.
fn without_id(enforces_resources: bool) -> Side {
    let mut milan = Side::with_enforcement(7, enforces_resources);
    milan.simulation.local().remove::<ConfigMap>(&cluster_id());
    milan.run(MOMENT);
    milan
}

#[test]
fn a_shadow_pod_for_another_cluster_is_refused_and_holds_no_quota() {
    for enforces_resources in [true, false] {
        let mut milan = Side::with_enforcement(7, enforces_resources);
        request_for(&mut milan, Some("turin"));
        assert_eq!(milan.pods(), [""; 0]);
        assert_eq!(milan.events("a"), [REFUSED]);
        assert!(milan.replanned().is_empty());

        milan.request("b", 2, "4");
        milan.run(MOMENT);
        assert_eq!(milan.pods(), ["b"]);
    }
}

#[test]
fn a_message_shows_no_control_characters_of_a_destination() {
    let mut milan = Side::new(7);
    request_for(&mut milan, Some(&format!("\n{}", "x".repeat(4096))));

    let event = milan.events("a").pop().unwrap();
    assert!(event.starts_with("FailedCreatePod: label "), "{event}");
    assert!(event.len() < 1024 && !event.contains('\n'), "{event}");
}

#[test]
fn a_shadow_pod_whose_destination_is_corrected_gets_its_pod() {
    let mut milan = Side::new(7);
    request_for(&mut milan, Some("turin"));
    set_destination(&mut milan, "milan");

    assert_eq!(milan.pods(), ["a"]);
    assert_eq!(milan.events("a"), [REFUSED, "CreatedPod: created the pod"]);
}

#[test]
fn a_shadow_pod_without_destination_needs_no_cluster_id() {
    let mut milan = without_id(true);
    request_for(&mut milan, None);

    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_shadow_pod_waits_until_the_id_of_this_cluster_is_known() {
    for enforces_resources in [true, false] {
        for (destination, event) in [("milan", None), ("turin", Some(REFUSED))] {
            let mut milan = without_id(enforces_resources);
            request_for(&mut milan, Some(destination));
            milan.run(Duration::from_secs(120));
            assert_eq!(milan.pods(), [""; 0]);
            assert_eq!(milan.events("a"), [""; 0], "it may be for this cluster");
            assert!(milan.replanned().is_empty());

            milan.put_cluster_id("milan");
            milan.run(MOMENT);
            assert_eq!(milan.pods().is_empty(), event.is_some());
            assert_eq!(milan.events("a"), Vec::from_iter(event));
            assert!(milan.replanned().is_empty());
        }
    }
}

#[test]
fn a_pod_that_runs_stays_whatever_the_destination_is() {
    let mut milan = Side::new(7);
    request_for(&mut milan, Some("milan"));
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    let uid = milan.pod("a").unwrap()["metadata"]["uid"].clone();
    set_destination(&mut milan, "turin");
    milan.put_cluster_id("naples");
    milan.run(MOMENT);
    milan.simulation.local().remove::<ConfigMap>(&cluster_id());
    milan.run(MOMENT);
    milan.simulation.hand_over(1);
    milan.put_cluster_id("milan");
    milan.run(Duration::from_secs(30));

    let pod = milan.pod("a").unwrap();
    assert_eq!(pod["metadata"]["uid"], uid);
    assert_eq!(pod["metadata"]["deletionTimestamp"], Value::Null);
    assert_eq!(milan.phase("a"), "Running");
    assert_eq!(milan.events("a"), [""; 0]);

    milan.simulation.hand_over(0);
    milan.remove::<Pod>("a");
    milan.run(Duration::from_secs(30));
    assert_eq!(milan.pods(), [""; 0], "a creation is checked");
    assert_eq!(milan.events("a"), [REFUSED]);
}
