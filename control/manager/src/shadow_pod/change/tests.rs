use super::*;
use serde_json::from_value;

fn spec(spec: Value) -> PodSpec {
    from_value(spec).unwrap()
}

/// Returns the spec of a ShadowPod, with these requests of processors of `web` and of the sidecar.
fn desired(web: &str, sidecar: &str, ephemeral: &[&str]) -> PodSpec {
    let resources =
        |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu}});
    let ephemeral: Vec<_> = ephemeral
        .iter()
        .map(|name| json!({"name": name, "image": "sh:1", "targetContainerName": "web"}))
        .collect();
    spec(json!({
        "containers": [{"name": "web", "image": "web:1", "resources": resources(web)}, {"name": "log"}],
        "initContainers": [
            {"name": "prepare", "resources": {"requests": {"cpu": "9"}}},
            {"name": "sidecar", "restartPolicy": "Always", "resources": resources(sidecar)},
        ],
        "ephemeralContainers": ephemeral,
    }))
}

fn followed(desired: &PodSpec) -> Followed {
    Followed::of(desired).unwrap()
}

fn allowed() -> Checks {
    Checks {
        policy: Ok(()),
        quota: Ok(()),
    }
}

/// Plans the change of a pod after that of its ShadowPod.
fn planned(desired: &PodSpec, pod: &PodSpec, checks: Checks) -> Planned {
    let followed = followed(desired);
    followed.compare(pod).plan(&followed, Some(desired), checks)
}

fn subresources(planned: &Planned) -> Vec<&str> {
    planned.applies.iter().map(|it| it.subresource).collect()
}

#[test]
fn a_pod_as_its_shadow_pod_needs_nothing() {
    let desired = desired("1", "1", &["a"]);
    let change = followed(&desired).compare(&desired);

    assert_eq!(change, Change::default());
    assert_eq!(planned(&desired, &desired, allowed()), Planned::default());
}

#[test]
fn equal_amounts_are_written_differently() {
    let (milli, one) = (desired("1000m", "1", &[]), desired("1", "1", &[]));

    assert_eq!(followed(&milli).compare(&one), Change::default());
}

#[test]
fn a_new_ephemeral_container_is_applied_with_the_earlier_ones() {
    let pod = desired("1", "1", &["a", "of-provider"]);
    let desired = desired("1", "1", &["a", "b"]);

    let change = followed(&desired).compare(&pod);
    assert_eq!(change.ephemeral_containers, ["b"]);
    assert!(!change.is_resize);
    let planned = planned(&desired, &pod, allowed());
    assert_eq!(subresources(&planned), ["ephemeralcontainers"]);
    let expected = json!({"spec": {"ephemeralContainers": [
        {"name": "a", "image": "sh:1", "targetContainerName": "web"},
        {"name": "b", "image": "sh:1", "targetContainerName": "web"},
    ]}});
    assert_eq!(planned.applies[0].fields, expected);
    assert_eq!(planned.refusal, None);
}

#[test]
fn a_resize_is_applied_with_the_resources_of_all_containers_and_nothing_else() {
    for (pod, name) in [
        (desired("1", "2", &[]), "container"),
        (desired("2", "1", &[]), "sidecar"),
    ] {
        let desired = desired("2", "2", &[]);

        let planned = planned(&desired, &pod, allowed());

        assert_eq!(subresources(&planned), ["resize"], "{name}");
        let resources = json!({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2"}});
        let expected = json!({"spec": {
            "containers": [{"name": "web", "resources": resources}],
            "initContainers": [{"name": "sidecar", "resources": resources}],
        }});
        assert_eq!(planned.applies[0].fields, expected, "{name}");
    }
}

#[test]
fn each_amount_of_processors_and_memory_is_compared() {
    for pointer in [
        "/containers/0/resources/requests/cpu",
        "/containers/0/resources/requests/memory",
        "/containers/0/resources/limits/cpu",
        "/initContainers/1/resources/limits/cpu",
    ] {
        let desired = desired("1", "1", &[]);
        let mut pod = json!(desired);
        *pod.pointer_mut(pointer).unwrap() = json!("7");

        let change = followed(&desired).compare(&spec(pod));

        assert!(change.is_resize, "{pointer}");
    }
}

/// A LimitRange of the provider has added them, and Kubernetes does not remove them.
#[test]
fn amounts_that_only_the_pod_has_stay() {
    let desired = spec(json!({"containers": [{"name": "web"}]}));
    let pod = spec(json!({"containers": [
        {"name": "web", "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "a/b": "1"}}},
        {"name": "injected", "resources": {"requests": {"cpu": "1"}}},
    ]}));

    assert_eq!(followed(&desired).compare(&pod), Change::default());
}

#[test]
fn a_resized_pod_keeps_what_the_provider_has_added() {
    let desired = spec(json!({"containers": [
        {"name": "web", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}},
        {"name": "gone", "resources": {"requests": {"cpu": "2"}}},
    ]}));
    let pod = spec(json!({"containers": [
        {"name": "web", "resources": {"requests": {"cpu": "1", "memory": "1Gi", "a/b": "1"}}},
        {"name": "injected", "resources": {"requests": {"cpu": "1"}}},
    ]}));

    let expected = spec(json!({"containers": [
        {"name": "web", "resources": {
            "requests": {"cpu": "2", "memory": "1Gi", "a/b": "1"}, "limits": {"cpu": "3"},
        }},
        {"name": "injected", "resources": {"requests": {"cpu": "1"}, "limits": null}},
    ]}));
    assert_eq!(followed(&desired).resized(&pod), expected);
}

#[test]
fn an_init_container_that_ends_is_not_resized() {
    let desired = desired("1", "1", &[]);
    let mut pod = json!(desired);
    pod["initContainers"][0]["resources"]["requests"]["cpu"] = json!("1");

    assert_eq!(followed(&desired).compare(&spec(pod)), Change::default());
}

#[test]
fn a_policy_refuses_ephemeral_containers_and_permits_the_resize() {
    let (desired, pod) = (desired("2", "1", &["a"]), desired("1", "1", &[]));
    let checks = Checks {
        policy: Err("privileged: remove it".to_owned()),
        ..allowed()
    };

    let planned = planned(&desired, &pod, checks);

    assert_eq!(subresources(&planned), ["resize"]);
    assert_eq!(planned.refusal.as_deref(), Some("privileged: remove it"));
}

#[test]
fn a_quota_refuses_the_resize_and_permits_ephemeral_containers() {
    let (desired, pod) = (desired("2", "1", &["a"]), desired("1", "1", &[]));
    let checks = Checks {
        quota: Err("exceeded quota: cpu".to_owned()),
        ..allowed()
    };

    let planned = planned(&desired, &pod, checks);

    assert_eq!(subresources(&planned), ["ephemeralcontainers"]);
    assert_eq!(planned.refusal.as_deref(), Some("exceeded quota: cpu"));
}

#[test]
fn checks_of_parts_that_do_not_change_refuse_nothing() {
    let refused = || Checks {
        policy: Err("policy".to_owned()),
        quota: Err("quota".to_owned()),
    };
    let pod = desired("1", "1", &["a"]);

    assert_eq!(planned(&pod, &pod, refused()), Planned::default());
    let both = planned(&desired("2", "1", &["b"]), &pod, refused());
    assert_eq!(both.refusal.as_deref(), Some("policy; quota"));
    assert_eq!(both.applies, []);
}

#[test]
fn the_spec_is_read_for_ephemeral_containers_only() {
    let (desired, pod) = (desired("2", "1", &["a"]), desired("1", "1", &[]));
    let followed = followed(&desired);

    let planned = followed.compare(&pod).plan(&followed, None, allowed());

    assert!(planned.needs_spec);
    assert_eq!(subresources(&planned), ["resize"]);
    let refused = Checks {
        policy: Err("policy".to_owned()),
        ..allowed()
    };
    let refused = followed.compare(&pod).plan(&followed, None, refused);
    assert!(!refused.needs_spec);
}

#[test]
fn other_differences_are_refused_by_their_path() {
    let cases = [
        (
            json!({"name": "web", "resources": {"requests": {"example.com/gpu": "2"}}}),
            "spec.pod.containers[web].resources.requests.example.com/gpu has changed",
        ),
        (
            json!({"name": "web", "resources": {"limits": {"ephemeral-storage": "2Gi"}}}),
            "spec.pod.containers[web].resources.limits.ephemeral-storage has changed",
        ),
        (
            json!({"name": "web", "resources": {"requests": {"cpu": "lots"}}}),
            "spec.pod.containers[web].resources.requests.cpu is no quantity",
        ),
        (
            json!({"name": "other\n"}),
            "spec.pod.containers[other\\n] is not in the pod",
        ),
    ];
    for (container, message) in cases {
        let desired = spec(json!({"containers": [container]}));
        let pod = spec(json!({"containers": [{"name": "web", "resources": {
            "requests": {"example.com/gpu": "1", "cpu": "1"}, "limits": {"ephemeral-storage": "1Gi"}}}]}));

        let planned = planned(&desired, &pod, allowed());

        let refusal = planned.refusal.unwrap();
        assert!(refusal.starts_with(message), "{refusal}");
        assert_eq!(planned.applies, []);
    }
}

#[test]
fn absurd_specs_are_refused() {
    let many = |count: usize| Vec::from_iter((0..count).map(|it| json!({"name": it.to_string()})));
    let amounts: serde_json::Map<_, _> = (0..65).map(|it| (it.to_string(), json!("1"))).collect();
    let long = "x".repeat(64);
    let named = |resource: String| json!([{"name": "a", "resources": {"limits": {resource: "1"}}}]);
    for (absurd, message) in [
        (json!({"containers": many(257)}), "more than 256 containers"),
        (
            json!({"containers": [], "ephemeralContainers": many(65)}),
            "has 65 containers: use 64",
        ),
        (
            json!({"containers": [{"name": long}]}),
            "has a name of 64 bytes",
        ),
        (
            json!({"containers": [], "ephemeralContainers": [{"name": long}]}),
            "spec.pod.ephemeralContainers has a name of 64 bytes",
        ),
        (
            json!({"containers": [{"name": "a", "resources": {"requests": amounts}}]}),
            "spec.pod.containers[a].resources is too large",
        ),
        (
            json!({"containers": named("x".repeat(318))}),
            "is too large",
        ),
    ] {
        let refusal = Followed::of(&spec(absurd)).unwrap_err();
        assert!(refusal.contains(message), "{refusal}");
    }
    let most = json!({"containers": many(256), "ephemeralContainers": many(64)});
    assert!(Followed::of(&spec(most)).is_ok());
}

#[test]
fn only_a_larger_request_needs_the_quota() {
    let amounts = |amounts: &[(&str, &str)]| -> BTreeMap<String, Amount> {
        let amounts = amounts.iter();
        amounts
            .map(|(name, it)| ((*name).to_owned(), amount(it).unwrap()))
            .collect()
    };
    let present = amounts(&[("cpu", "1"), ("memory", "1Gi")]);

    assert!(!grows(&present, &present));
    assert!(!grows(
        &present,
        &amounts(&[("cpu", "500m"), ("memory", "1Gi")])
    ));
    assert!(!grows(&present, &amounts(&[])));
    assert!(grows(
        &present,
        &amounts(&[("cpu", "500m"), ("memory", "2Gi")])
    ));
    assert!(grows(&present, &amounts(&[("cpu", "1"), ("a/b", "1")])));
}

#[test]
fn the_annotations_of_a_pod_name_a_refusal_of_limited_length() {
    let [applies, refused] = annotations_of(None);
    assert_eq!(
        applies,
        ("liqo.io/applies-changes", Some("true".to_owned()))
    );
    assert_eq!(refused, ("liqo.io/change-refused", None));

    let [_, (_, refusal)] = annotations_of(Some(&"ä".repeat(500)));
    assert_eq!(refusal.unwrap(), "ä".repeat(256));
}
