//! ShadowPods: their creator, and the fields that may change.

use super::fixture::{SETTINGS, cache, create, decide, is_unchanged, patched, refusal, update};
use crate::webhook::creator::creator_label;
use crate::webhook::handler::{Handler, Settings};
use crate::webhook::review::{Operation, Request};
use proptest::prelude::*;
use serde_json::{Value, json};

const USER: &str = "milan-a8a4c692b93b";

fn shadow_pod(creator: Option<&str>) -> Value {
    let mut labels = json!({"offloading.liqo.io/origin": "rome"});
    if let Some(creator) = creator {
        labels["liqo.io/creator-user"] = creator.into();
    }
    json!({"metadata": {"name": "cart", "labels": labels}, "spec": {"pod": {
        "containers": [{"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "b", "image": "b:1", "args": ["x"]}],
        "restartPolicy": "Always",
        "volumes": [{"name": "v", "emptyDir": {}}],
    }}})
}

fn by(user: &str, mut request: Request) -> Request {
    request.user_info.username = user.to_owned();
    request
}

fn creator(object: &Value) -> Option<&str> {
    object["metadata"]["labels"]["liqo.io/creator-user"].as_str()
}

#[track_caller]
fn labelled(request: &Request) -> Value {
    let response = decide(Handler::MutateShadowPod, request, &cache());
    patched(&request.object, &response)
}

#[test]
fn the_creator_is_the_user_whatever_the_object_says() {
    let mut bare = shadow_pod(None);
    bare["metadata"].as_object_mut().unwrap().remove("labels");
    for object in [shadow_pod(None), shadow_pod(Some("victim")), bare] {
        let request = create(object);
        let patched = labelled(&request);

        assert_eq!(creator(&patched), Some(USER));
        let again = decide(Handler::MutateShadowPod, &create(patched), &cache());
        assert!(is_unchanged(&again));
    }
}

#[test]
fn characters_that_no_label_has_are_replaced_as_upstreams() {
    assert_eq!(creator_label(USER), USER);
    assert_eq!(
        creator_label("system:serviceaccount:liqo:vk"),
        "system-serviceaccount-liqo-vk"
    );
    assert_eq!(creator_label("a/b@c_d.E"), "a-b-c_d.E");
}

#[test]
fn an_update_keeps_the_creator_that_the_virtual_kubelet_omits() {
    let old = shadow_pod(Some(USER));
    for object in [shadow_pod(None), shadow_pod(Some("victim"))] {
        let patched = labelled(&update(old.clone(), object));
        assert_eq!(creator(&patched), Some(USER));
    }
    let same = decide(
        Handler::MutateShadowPod,
        &update(old.clone(), old),
        &cache(),
    );
    assert!(is_unchanged(&same));
}

#[test]
fn another_user_and_an_unknown_creator_are_refused() {
    let refused = |user: &str, old: Value| {
        let request = by(user, update(old, shadow_pod(None)));
        refusal(decide(Handler::MutateShadowPod, &request, &cache()))
    };

    let modified = refused("other", shadow_pod(Some(USER)));
    assert!(
        modified.starts_with("creator name cannot be modified"),
        "{modified}"
    );
    let missing = refused(USER, shadow_pod(None));
    assert!(missing.starts_with("missing creator name"), "{missing}");
}

#[test]
fn the_garbage_collector_finishes_a_deletion() {
    let mut object = shadow_pod(None);
    object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let request = by(collector, update(shadow_pod(Some(USER)), object));

    assert_eq!(creator(&labelled(&request)), Some(USER));
}

#[test]
fn without_enforcement_no_user_chooses_the_creator() {
    let settings = Settings {
        enforces_resources: false,
        ..SETTINGS
    };
    let labelled = |request: &Request| {
        let response = Handler::MutateShadowPod.decide(request, &cache(), &settings);
        patched(&request.object, &response)
    };

    let created = labelled(&create(shadow_pod(Some("victim"))));
    assert_eq!(creator(&created), None);
    let kept = labelled(&by(
        "other",
        update(shadow_pod(Some(USER)), shadow_pod(None)),
    ));
    assert_eq!(creator(&kept), Some(USER));
    let none = labelled(&update(shadow_pod(None), shadow_pod(Some("victim"))));
    assert_eq!(creator(&none), None);
}

#[test]
fn fields_that_may_change_on_a_pod_may_change() {
    for (pointer, value) in [
        ("/containers/0/image", json!("a:2")),
        ("/initContainers/0/image", json!("b:2")),
        ("/containers/0/resources", json!({"requests": {"cpu": "2"}})),
        ("/containers/0/resources", json!({"requests": {}})),
        ("/containers/0/resources", Value::Null),
        (
            "/initContainers/0/resources",
            json!({"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi", "cpu": "1"}}),
        ),
        ("/activeDeadlineSeconds", json!(5)),
        ("/tolerations", json!([{"operator": "Exists"}])),
        (
            "/ephemeralContainers",
            json!([{"name": "debug", "image": "d"}]),
        ),
        ("/hostname", Value::Null),
    ] {
        let old = shadow_pod(None);
        let response = validated(&old, pointer, value);
        assert!(is_unchanged(&response), "{pointer}: {response:?}");
    }
    let mut relabelled = shadow_pod(None);
    relabelled["metadata"]["labels"]["x"] = "y".into();
    let request = update(shadow_pod(None), relabelled);
    assert!(is_unchanged(&decide(
        Handler::ValidateShadowPod,
        &request,
        &cache()
    )));
}

#[test]
fn a_change_of_another_field_is_refused_by_its_path() {
    let container = json!({"name": "c", "image": "c", "securityContext": {"privileged": true}});
    let host = json!([{"name": "v", "hostPath": {"path": "/"}}]);
    for (pointer, value, path) in [
        (
            "/containers/0/name",
            json!("z"),
            "spec.pod.containers[0].name",
        ),
        (
            "/containers/0/command",
            json!(["sh"]),
            "spec.pod.containers[0].command",
        ),
        (
            "/initContainers/0/args/0",
            json!("y"),
            "spec.pod.initContainers[0].args[0]",
        ),
        (
            "/containers",
            json!([container.clone(), container]),
            "spec.pod.containers",
        ),
        ("/volumes", host, "spec.pod.volumes[0].emptyDir"),
        (
            "/containers/0/resources",
            json!({"requests": {"cpu": "1", "example.com/gpu": "1"}}),
            "spec.pod.containers[0].resources",
        ),
        (
            "/containers/0/resources",
            json!({"claims": [{"name": "gpu"}]}),
            "spec.pod.containers[0].resources",
        ),
        (
            "/containers/0/resizePolicy",
            json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"}]),
            "spec.pod.containers[0].resizePolicy",
        ),
        ("/hostNetwork", json!(true), "spec.pod.hostNetwork"),
        ("/nodeName", json!("n"), "spec.pod.nodeName"),
        ("/volumes", Value::Null, "spec.pod.volumes"),
    ] {
        let message = refusal(validated(&shadow_pod(None), pointer, value));
        assert!(
            message.starts_with(&format!("{path} of the ShadowPod")),
            "{message}"
        );
    }
    for spec in [Value::Null, json!({}), json!({"pod": null})] {
        let mut emptied = shadow_pod(None);
        emptied["spec"] = spec;
        let request = update(shadow_pod(None), emptied);
        refusal(decide(Handler::ValidateShadowPod, &request, &cache()));
    }
}

#[test]
fn ephemeral_containers_are_added_and_neither_changed_nor_removed() {
    let with = |containers: Value| {
        let mut object = shadow_pod(None);
        object["spec"]["pod"]["ephemeralContainers"] = containers;
        object
    };
    let (first, second) = (json!({"name": "a", "image": "a"}), json!({"name": "b"}));
    let reviewed = |old: Value, new: Value| {
        let request = update(with(old), with(new));
        decide(Handler::ValidateShadowPod, &request, &cache())
    };

    for (old, new) in [
        (Value::Null, json!([first])),
        (json!([]), Value::Null),
        (json!([first]), json!([first, second])),
        (json!([first]), json!([second, first])),
    ] {
        let response = reviewed(old.clone(), new);
        assert!(is_unchanged(&response), "{old}: {response:?}");
    }
    for new in [
        Value::Null,
        json!([]),
        json!([second]),
        json!([{"name": "a", "image": "other"}]),
    ] {
        let message = refusal(reviewed(json!([first]), new));
        let path = "spec.pod.ephemeralContainers[0] of the ShadowPod";
        assert!(message.starts_with(path), "{message}");
    }
}

/// Reviews the change of a field of the pod.
fn validated(old: &Value, pointer: &str, value: Value) -> crate::webhook::review::Response {
    let mut object = old.clone();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = object["spec"]["pod"].pointer_mut(parent).unwrap();
    match name.parse::<usize>() {
        Ok(index) => parent[index] = value,
        Err(_) => parent[name] = value,
    }
    let request = update(old.clone(), object);
    decide(Handler::ValidateShadowPod, &request, &cache())
}

#[test]
fn deletions_are_never_refused() {
    for handler in Handler::ALL {
        for operation in [Operation::Delete, Operation::Connect] {
            let request = Request {
                operation,
                old_object: shadow_pod(None),
                ..create(Value::Null)
            };
            assert!(
                is_unchanged(&decide(handler, &request, &cache())),
                "{handler:?}"
            );
        }
    }
}

proptest! {
    #[test]
    fn every_user_has_a_label_of_kubernetes_syntax(user in "\\PC{0,300}|[-a:]{0,80}") {
        let label = creator_label(&user);

        let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
        prop_assert!(label.len() <= 63, "{}", label);
        prop_assert!(is_end(label.chars().next()) && is_end(label.chars().last()), "{}", label);
        prop_assert!(label.chars().all(|it| it.is_ascii_alphanumeric() || "_.-".contains(it)));
    }

    /// Users of certificates have names that labels may have; only their length may not fit.
    #[test]
    fn long_users_with_one_beginning_have_different_labels(a in "[a-z]{1,9}", b in "[a-z]{1,9}") {
        let [first, second] = [&a, &b].map(|it| creator_label(&("x".repeat(80) + it)));

        prop_assert_eq!(a == b, first == second);
    }
}
