//! Quotas, at every instant.

use super::Side;
use super::side::{MOMENT, USER, key, shadow_pod, spec};
use control_api::{Quota, ShadowPod};
use control_runtime::Key;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::node::v1::RuntimeClass;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_shadow_pod_that_does_not_fit_waits_and_its_event_names_the_amounts() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "3");
    milan.request("b", 2, "1500m");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    let expected = "FailedCreatePod: exceeded quota: cpu, requested 1.5, used 3, limited 4, available 1: wait until pods end, \
                    or enlarge the ResourceSlice";
    assert_eq!(milan.events("b"), [expected]);
    assert!(milan.replanned().is_empty());
}

#[test]
fn waiting_shadow_pods_get_what_becomes_available_in_their_order() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "4");
    milan.run(MOMENT);
    for (name, second, cpu) in [("d", 4, "1"), ("c", 3, "2"), ("b", 2, "2")] {
        milan.request(name, second, cpu);
    }
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);

    milan.set_phase("a", "Succeeded");
    milan.run(MOMENT);
    assert_eq!(
        milan.pods(),
        ["a", "b", "c"],
        "the ended pod counts no more"
    );
    milan.remove_both("c");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b", "d"]);
}

#[test]
fn a_smaller_shadow_pod_does_not_wait_for_a_larger_one() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "5");
    milan.request("b", 2, "4");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["b"]);
}

#[test]
fn a_changed_quota_is_considered_and_revokes_nothing() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "3");
    milan.request("b", 2, "3");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);

    milan.edit_quota(|it| it["spec"]["resources"]["cpu"] = json!("6"));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b"]);

    milan.edit_quota(|it| it["spec"]["resources"]["cpu"] = json!("1"));
    milan.request("c", 3, "1");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b"]);
    let event = milan.events("c").pop().unwrap();
    assert!(event.contains("used 6, limited 1, available 0"), "{event}");
}

#[test]
fn a_cordoned_quota_keeps_pods_and_grants_no_new_ones() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    milan.edit_quota(|it| it["spec"]["cordoned"] = json!(true));
    milan.run(MOMENT);
    milan.request("b", 2, "1");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("user is cordoned"));

    milan.edit_quota(|it| it["spec"]["cordoned"] = json!(false));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b"]);
}

#[test]
fn a_resource_that_the_quota_does_not_contain_is_refused() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "1");
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["spec"]["pod"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/gpu": "1"});
    });
    milan.run(MOMENT);
    assert_eq!(milan.pods(), [""; 0]);
    assert!(
        milan.events("a")[0]
            .contains("nvidia.com/gpu, requested 1, which the Quota does not contain")
    );

    milan.edit_quota(|it| it["spec"]["resources"]["nvidia.com/gpu"] = json!("1"));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn pods_are_counted() {
    let mut milan = Side::new(1);
    milan.edit_quota(|it| it["spec"]["resources"]["pods"] = json!("1"));
    milan.request("a", 1, "1m");
    milan.request("b", 2, "1m");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("pods, requested 1, used 1, limited 1, available 0"));
}

#[test]
fn each_user_has_a_quota_of_its_own() {
    let mut milan = Side::new(1);
    milan.put_quota("rome", "other:user", &json!({"cpu": "1", "pods": "10"}));
    milan.request("a", 1, "4");
    milan.request("b", 2, "1");
    milan.edit::<ShadowPod>(&key("b"), |it| {
        it["metadata"]["labels"]["liqo.io/creator-user"] = json!("other-user");
    });
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a", "b"]);
}

#[test]
fn a_quota_is_shared_by_all_namespaces_of_the_user() {
    let mut milan = Side::new(1);
    milan.put_consumer("rome", "books-rome");
    let mut books = shadow_pod("a", 1, &spec("4"));
    books["metadata"]["namespace"] = json!("books-rome");
    milan.put::<ShadowPod>(books);
    milan.request("b", 2, "1");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("cpu, requested 1, used 4"));
}

#[test]
fn a_user_of_another_tenant_with_the_same_name_uses_its_own_quota() {
    let mut milan = Side::new(1);
    milan.put_consumer("turin", "demo-turin");
    milan.put_quota("turin", USER, &json!({"cpu": "4", "pods": "10"}));
    let mut of_turin = shadow_pod("a", 1, &spec("4"));
    of_turin["metadata"]["namespace"] = json!("demo-turin");
    of_turin["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("turin");
    milan.put::<ShadowPod>(of_turin);
    milan.request("b", 2, "1");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["b", "a"]);
}

/// The provider has drained a node, for example.
#[test]
fn a_deleted_pod_is_created_again_although_its_quota_is_cordoned() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    milan.edit_quota(|it| it["spec"]["cordoned"] = json!(true));
    milan.run(MOMENT);
    milan.request("b", 2, "1");
    milan.run(MOMENT);
    milan.remove::<Pod>("a");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("user is cordoned"));
    assert!(milan.replanned().is_empty());
}

#[test]
fn an_older_shadow_pod_does_not_take_the_place_of_a_deleted_pod() {
    for leader in [0, 1] {
        let mut milan = Side::new(1);
        milan.request("a", 2, "3");
        milan.run(MOMENT);
        milan.set_phase("a", "Running");
        milan.request("b", 1, "3");
        milan.run(MOMENT);
        milan.simulation.hand_over(leader);
        milan.remove::<Pod>("a");
        milan.run(MOMENT);

        assert_eq!(milan.pods(), ["a"]);
    }
}

#[test]
fn a_deleted_pod_that_requests_more_since_is_created_again_only_if_it_fits() {
    let mut milan = Side::new(1);
    milan.request("a", 1, "3");
    milan.run(MOMENT);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    milan.edit::<ShadowPod>(&key("a"), |it| it["spec"]["pod"] = spec("5"));
    milan.remove::<Pod>("a");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), [""; 0]);
    let event = milan.events("a").pop().unwrap();
    assert!(
        event.contains("cpu, requested 5, used 0, limited 4"),
        "{event}"
    );
}

#[test]
fn without_a_quota_nothing_is_created() {
    let mut milan = Side::new(1);
    milan
        .simulation
        .local()
        .remove::<Quota>(&Key::new("liqo-tenant-rome", USER));
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), [""; 0]);
    assert!(milan.events("a")[0].contains("no Quota in namespace liqo-tenant-rome"));

    milan.put_quota("rome", USER, &json!({"cpu": "1", "pods": "1"}));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_quota_that_is_being_deleted_grants_nothing() {
    let mut milan = Side::new(1);
    milan.edit_quota(|it| {
        it["metadata"]["finalizers"] = json!(["example.com/wait"]);
        it["metadata"]["deletionTimestamp"] = json!("2026-11-21T08:29:28Z");
    });
    milan.request("a", 1, "1");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), [""; 0]);
    assert!(milan.events("a")[0].contains("no Quota in namespace liqo-tenant-rome"));
}

#[test]
fn a_setting_switches_enforcement_off() {
    let mut milan = Side::with_enforcement(1, false);
    milan.request("a", 1, "400");
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["metadata"]["labels"]
            .as_object_mut()
            .unwrap()
            .remove("liqo.io/creator-user");
    });
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.replanned().is_empty());
}

#[test]
fn the_overhead_of_a_runtime_class_counts() {
    let mut milan = Side::new(1);
    milan.put::<RuntimeClass>(json!({"metadata": {"name": "kata"}, "handler": "kata",
        "overhead": {"podFixed": {"cpu": "1500m"}}}));
    // As Kubernetes' admission does.
    milan.simulation.local().set_defaults::<Pod>(|pod| {
        pod["spec"]["overhead"] = json!({"cpu": "1500m"});
    });
    for (name, second) in [("a", 1), ("b", 2)] {
        milan.request(name, second, "1");
        milan.edit::<ShadowPod>(&key(name), |it| {
            it["spec"]["pod"]["runtimeClassName"] = json!("kata");
        });
    }
    milan.run(Duration::from_millis(1));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    assert!(
        milan.events("b")[0].contains("cpu, requested 2.5, used 2.5"),
        "{:?}",
        milan.events("b")
    );
}

#[test]
fn a_changed_overhead_of_a_runtime_class_is_considered() {
    let class = |cpu: &str| json!({"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": cpu}}});
    let mut milan = Side::new(1);
    milan.put::<RuntimeClass>(class("4"));
    let mut kata = spec("1");
    kata["runtimeClassName"] = json!("kata");
    milan.put::<ShadowPod>(shadow_pod("a", 1, &kata));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), [""; 0]);

    milan.put::<RuntimeClass>(class("3"));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
}

/// More is requested than the Quota grants, while replicas crash.
#[test]
fn faults_neither_exceed_the_quota_nor_leave_any_of_it() {
    for seed in 0..10 {
        let mut milan = Side::new(seed);
        for second in 1..7 {
            milan.request(&format!("p{second}"), second, "1500m");
        }
        for leader in [1, 0, 1, 0] {
            milan.run_within_quota(3);
            milan.simulation.crash(leader);
            milan.run_within_quota(2);
            milan.simulation.hand_over(leader);
            milan.partition(Duration::from_millis(5));
        }
        milan.run_within_quota(100);
        milan.run(Duration::from_secs(300));

        assert_eq!(milan.pods().len(), 2, "seed {seed}");
        assert!(milan.replanned().is_empty(), "seed {seed}");
    }
}

/// Init containers and sidecars of an existing pod count as they did before.
#[test]
fn all_containers_of_an_existing_pod_count() {
    let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
    let mut milan = Side::new(1);
    let mut init = spec("1");
    init["initContainers"] = json!([
        {"name": "sidecar", "restartPolicy": "Always", "resources": cpu("1")},
        {"name": "init", "resources": cpu("2")},
    ]);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &init));
    milan.run(MOMENT);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    milan.request("b", 2, "2");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("cpu, requested 2, used 3"));
}
