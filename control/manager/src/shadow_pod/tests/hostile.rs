//! ShadowPods of a hostile consumer, past the admission webhook.

use super::Side;
use super::side::{MOMENT, NAMESPACE, key, shadow_pod, spec};
use control_api::{ShadowPod, TenantPolicy};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::{Value, json};
use std::time::Duration;

/// Creates a ShadowPod that must have no pod, and returns its Event.
#[track_caller]
fn refused(milan: &mut Side, shadow_pod: Value) -> String {
    let name = shadow_pod["metadata"]["name"].as_str().unwrap().to_owned();
    milan.put::<ShadowPod>(shadow_pod);
    milan.run(MOMENT);
    assert_eq!(milan.pods(), [""; 0]);
    milan.events(&name).pop().unwrap()
}

#[track_caller]
fn assert_refused(edit: impl FnOnce(&mut Value), expected: &str) {
    let mut milan = Side::new(4);
    milan.put_consumer("turin", "demo-turin");
    milan.put::<Namespace>(json!({"metadata": {"name": "private"}}));
    let mut object = shadow_pod("a", 1, &spec("1"));
    edit(&mut object);
    let event = refused(&mut milan, object);
    assert!(
        event.starts_with("FailedCreatePod: ") && event.contains(expected),
        "{event}"
    );
    assert!(event.contains(": ") && event.len() < 1024, "{event}");
    assert!(milan.replanned().is_empty());
}

#[test]
fn a_shadow_pod_of_another_origin_is_refused() {
    let origin = "offloading.liqo.io/origin";
    assert_refused(
        |it| it["metadata"]["labels"][origin] = json!("turin"),
        "is of consumer `rome`",
    );
    assert_refused(
        |it| {
            it["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove(origin);
        },
        "is of consumer `rome`",
    );
    assert_refused(
        |it| it["metadata"]["namespace"] = json!("demo-turin"),
        "is of consumer `turin`",
    );
}

#[test]
fn a_shadow_pod_outside_of_the_namespaces_of_consumers_is_refused() {
    let expected = "was not created for a NamespaceMap";
    for namespace in ["private", "liqo-tenant-rome"] {
        assert_refused(
            |it| it["metadata"]["namespace"] = json!(namespace),
            expected,
        );
    }
}

/// Also if an administrator has labelled these as namespaces of the consumer.
#[test]
fn the_namespaces_of_liqo_are_of_no_consumer() {
    for namespace in ["liqo", "liqo-tenant-rome"] {
        let mut milan = Side::new(4);
        let tenant =
            json!({"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"});
        let labels = match namespace {
            "liqo" => json!({"liqo.io/remote-cluster-id": "rome"}),
            _ => tenant,
        };
        milan.put::<Namespace>(json!({"metadata": {
            "name": namespace,
            "labels": labels,
            "annotations": {"liqo.io/managed-by-namespace-map": "liqo-tenant-rome/milan"},
        }}));
        let mut object = shadow_pod("a", 1, &spec("1"));
        object["metadata"]["namespace"] = json!(namespace);
        let event = refused(&mut milan, object);

        assert!(
            event.contains("was not created for a NamespaceMap"),
            "{event}"
        );
    }
}

#[test]
fn a_namespace_that_claims_another_tenant_namespace_is_refused() {
    let mut milan = Side::new(4);
    milan.put_consumer("turin", "demo-turin");
    milan.edit::<Namespace>(&Key::cluster(NAMESPACE), |it| {
        it["metadata"]["annotations"]["liqo.io/managed-by-namespace-map"] =
            json!("liqo-tenant-turin/milan");
    });
    let event = refused(&mut milan, shadow_pod("a", 1, &spec("1")));
    assert!(
        event.contains("does not name the tenant namespace of consumer `rome`"),
        "{event}"
    );

    milan.edit::<Namespace>(&Key::cluster(NAMESPACE), |it| {
        it["metadata"]["annotations"]["liqo.io/managed-by-namespace-map"] =
            json!("liqo-tenant-rome/milan");
    });
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_shadow_pod_without_creator_is_refused() {
    assert_refused(
        |it| {
            it["metadata"]["labels"]
                .as_object_mut()
                .unwrap()
                .remove("liqo.io/creator-user");
        },
        "label liqo.io/creator-user is missing",
    );
    assert_refused(
        |it| it["metadata"]["labels"]["liqo.io/creator-user"] = json!(""),
        "label liqo.io/creator-user is missing",
    );
}

#[test]
fn an_unknown_creator_has_no_quota() {
    assert_refused(
        |it| it["metadata"]["labels"]["liqo.io/creator-user"] = json!("other"),
        "no Quota in namespace liqo-tenant-rome",
    );
}

#[test]
fn a_quota_of_another_tenant_does_not_count_for_an_equally_named_creator() {
    assert_refused(
        |it| {
            it["metadata"]["namespace"] = json!("demo-turin");
            it["metadata"]["labels"]["offloading.liqo.io/origin"] = json!("turin");
        },
        "no Quota in namespace liqo-tenant-turin",
    );
}

#[test]
fn the_creator_of_another_tenant_has_no_quota_here() {
    let mut milan = Side::new(4);
    milan.put_consumer("turin", "demo-turin");
    milan.put_quota(
        "turin",
        "milan-of-turin",
        &json!({"cpu": "100", "pods": "100"}),
    );
    let mut object = shadow_pod("a", 1, &spec("1"));
    object["metadata"]["labels"]["liqo.io/creator-user"] = json!("milan-of-turin");
    let event = refused(&mut milan, object);

    assert!(
        event.contains("no Quota in namespace liqo-tenant-rome"),
        "{event}"
    );
}

#[test]
fn absurd_contents_are_refused() {
    for (value, expected) in [
        ("-1", "which is negative"),
        ("-5", "requests.cpu is `-5`"),
        ("1e500", "2^63 or more"),
        ("1e999", "2^63 or more"),
        ("lots", "not a quantity"),
        ("1000000", "exceeded quota: cpu"),
    ] {
        assert_refused(|it| it["spec"]["pod"] = spec(value), expected);
    }
    assert_refused(|it| it["spec"] = json!({}), "spec.pod is missing");
    assert_refused(
        |it| it["metadata"]["annotations"] = json!({"x": "x".repeat(400_000)}),
        "longer than",
    );
    assert_refused(
        |it| {
            let env = json!([{"name": "A", "value": "x".repeat(1_200_000)}]);
            it["spec"]["pod"]["containers"][0]["env"] = env;
        },
        "bytes, and 1048576 are allowed",
    );
    assert_refused(
        |it| it["spec"]["pod"]["nodeName"] = json!("milan-1"),
        "spec.pod.nodeName",
    );
    let long = format!("bad\u{1b}[31m{}", "x".repeat(5000));
    assert_refused(
        |it| it["spec"]["pod"]["serviceAccountName"] = json!(long),
        "bad\\u{1b}",
    );
}

#[test]
fn large_objects_do_not_delay_others() {
    let mut milan = Side::new(4);
    let mut large = spec("1");
    let many: Vec<_> = (0..30_000)
        .map(|it| json!({"name": format!("c{it}")}))
        .collect();
    large["containers"] = json!(many);
    milan.put::<ShadowPod>(shadow_pod("a", 1, &large));
    milan.request("b", 2, "1");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), ["b"]);
    assert!(milan.events("a")[0].contains("30000 containers"));
}

/// Otherwise a consumer could free its Quota while its pods run.
#[test]
fn a_pod_stays_charged_when_the_creator_of_its_shadow_pod_changes() {
    for creator in [None, Some("someone-else")] {
        let mut milan = Side::new(4);
        milan.request("a", 1, "4");
        milan.run(MOMENT);
        milan.edit::<ShadowPod>(&key("a"), |it| {
            let labels = it["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove("liqo.io/creator-user");
            let other = creator.map(|creator| ("liqo.io/creator-user".to_owned(), json!(creator)));
            labels.extend(other);
        });
        milan.request("b", 2, "1");
        milan.run(MOMENT);

        assert_eq!(milan.pods(), ["a"]);
        assert_eq!(
            milan.pod("a").unwrap()["metadata"]["labels"]["liqo.io/creator-user"],
            "milan-a8a4c692b93b"
        );
    }
}

#[test]
fn a_pod_stays_charged_when_its_shadow_pod_goes() {
    let mut milan = Side::new(4);
    milan.request("a", 1, "4");
    milan.run(MOMENT);
    milan.remove::<ShadowPod>("a");
    milan.request("b", 2, "1");
    milan.run(Duration::from_secs(60));
    assert_eq!(milan.pods(), ["a"]);

    milan.remove::<Pod>("a");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["b"]);
}

#[test]
fn a_changed_policy_is_considered_and_revokes_nothing() {
    let mut milan = Side::new(4);
    let mut host = spec("1");
    host["hostNetwork"] = json!(true);
    let event = refused(&mut milan, shadow_pod("a", 1, &host));
    assert!(event.contains("spec.pod.hostNetwork"), "{event}");

    milan.put_policy("rome", &json!({"podSecurity": "privileged"}));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    milan.put_policy("rome", &json!({"podSecurity": "restricted"}));
    milan.request("b", 2, "1");
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
    assert!(milan.events("b")[0].contains("`restricted`"));
}

#[test]
fn the_default_policy_applies_to_consumers_without_one_of_their_own() {
    let mut milan = Side::new(4);
    let mut batch = spec("1");
    batch["priorityClassName"] = json!("batch");
    let event = refused(&mut milan, shadow_pod("a", 1, &batch));
    assert!(event.contains("spec.priorityClasses"), "{event}");
    milan.put_policy("default", &json!({"priorityClasses": ["batch"]}));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);

    milan.put_policy("rome", &json!({}));
    milan.put::<ShadowPod>(shadow_pod("b", 2, &batch));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"], "its own policy applies as a whole");
    milan.put_policy("turin", &json!({"priorityClasses": ["batch"]}));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"], "a policy of another consumer");
    milan.put_policy("rome", &json!({"priorityClasses": ["batch"]}));
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a", "b"]);
}

#[test]
fn a_namespace_counts_once_its_tenant_namespace_is_labelled() {
    let mut milan = Side::new(4);
    let tenant = Key::cluster("liqo-tenant-rome");
    milan.edit::<Namespace>(&tenant, |it| it["metadata"]["labels"] = json!({}));
    let event = refused(&mut milan, shadow_pod("a", 1, &spec("1")));
    assert!(
        event.contains("does not name the tenant namespace"),
        "{event}"
    );

    let labels = json!({"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"});
    milan.edit::<Namespace>(&tenant, |it| it["metadata"]["labels"] = labels);
    milan.run(MOMENT);
    assert_eq!(milan.pods(), ["a"]);
}

#[test]
fn a_policy_outside_of_liqos_namespace_has_no_effect() {
    let mut milan = Side::new(4);
    milan.put::<TenantPolicy>(json!({"apiVersion": "authentication.liqo.io/v1beta1", "kind": "TenantPolicy",
        "metadata": {"name": "rome", "namespace": "liqo-tenant-rome"}, "spec": {"podSecurity": "privileged"}}));
    let mut host = spec("1");
    host["hostPID"] = json!(true);
    let event = refused(&mut milan, shadow_pod("a", 1, &host));

    assert!(event.contains("spec.pod.hostPID"), "{event}");
}

/// The policy may have changed since the pod was created.
#[test]
fn a_changed_spec_is_checked_when_the_pod_is_created_again() {
    let mut milan = Side::new(4);
    milan.request("a", 1, "1");
    milan.run(MOMENT);
    milan.set_phase("a", "Running");
    milan.run(MOMENT);
    milan.edit::<ShadowPod>(&key("a"), |it| {
        it["spec"]["pod"]["hostNetwork"] = json!(true)
    });
    milan.remove::<Pod>("a");
    milan.run(MOMENT);

    assert_eq!(milan.pods(), [""; 0]);
    assert!(
        milan
            .events("a")
            .pop()
            .unwrap()
            .contains("spec.pod.hostNetwork")
    );
}
