use crate::pod::forge::{Change, Context, change, shadow_pod};
use crate::pod::tests::{context, pod};
use control_api::offloading::virtual_node::OffloadingPatch;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};

fn resources(cpu: &str) -> Value {
    json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}})
}

fn with(cpu: &str, sidecar: &str, ephemeral: &[&str]) -> Pod {
    let ephemeral: Vec<_> = ephemeral.iter().map(|name| json!({"name": name})).collect();
    pod(
        &json!({
            "containers": [{"name": "web", "resources": resources(cpu)}, {"name": "log"}],
            "ephemeralContainers": ephemeral,
            "initContainers": [{"name": "sidecar", "resources": resources(sidecar)}],
        }),
        &json!({}),
    )
}

fn context_of(patch: &OffloadingPatch, applies_changes: bool) -> Context<'_> {
    Context {
        applies_changes,
        ..context(patch)
    }
}

fn created(context: &Context<'_>) -> PodSpec {
    shadow_pod(&with("1", "1", &["first"]), context)
        .spec
        .pod
        .unwrap()
}

/// Returns the names of the new ephemeral containers and of the resized containers.
fn names(change: &Change) -> [Vec<&str>; 2] {
    [&change.ephemeral_containers, &change.resized]
        .map(|list| list.iter().map(String::as_str).collect())
}

#[test]
fn an_unchanged_pod_needs_no_change() {
    let patch = OffloadingPatch::default();
    let context = context_of(&patch, true);

    assert_eq!(
        change(&with("1", "1", &["first"]), &created(&context), &context),
        None
    );
}

#[test]
fn new_ephemeral_containers_and_resources_are_added_and_nothing_else() {
    let patch = OffloadingPatch::default();
    let context = context_of(&patch, true);
    let created = created(&context);
    let mut local = with("2", "3", &["first", "second"]);
    local.spec.as_mut().unwrap().hostname = Some("changed".to_owned());

    let change_ = change(&local, &created, &context).unwrap();

    assert_eq!(names(&change_), [vec!["second"], vec!["web", "sidecar"]]);
    let spec = serde_json::to_value(change_.spec.unwrap()).unwrap();
    let mut expected = serde_json::to_value(&created).unwrap();
    expected["containers"][0]["resources"] = resources("2");
    expected["initContainers"][0]["resources"] = resources("3");
    let mut second = expected["ephemeralContainers"][0].clone();
    second["name"] = json!("second");
    expected["ephemeralContainers"]
        .as_array_mut()
        .unwrap()
        .push(second);
    assert_eq!(spec, expected);
}

#[test]
fn a_change_that_was_carried_out_is_followed_by_none() {
    let patch = OffloadingPatch::default();
    let context = context_of(&patch, true);
    let local = with("2", "3", &["first", "second"]);
    let spec = change(&local, &created(&context), &context)
        .unwrap()
        .spec
        .unwrap();

    assert_eq!(change(&local, &spec, &context), None);
}

#[test]
fn a_provider_that_applies_no_changes_gets_none_and_the_names_are_known() {
    let patch = OffloadingPatch::default();
    let context = context_of(&patch, false);

    let change = change(&with("2", "1", &["first"]), &created(&context), &context).unwrap();

    assert_eq!(names(&change), [vec!["first"], vec!["web"]]);
    assert_eq!(change.spec, None);
}

#[test]
fn containers_and_claims_of_the_shadow_pod_stay() {
    let patch = OffloadingPatch::default();
    let context = context_of(&patch, true);
    let mut created = created(&context);
    created.containers.remove(1);
    let claims = json!({"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}});
    created.containers[0].resources = serde_json::from_value(claims).unwrap();
    let removed = with("2", "1", &[]);

    let spec = change(&removed, &created, &context).unwrap().spec.unwrap();

    assert_eq!(spec.containers.len(), 1);
    assert_eq!(spec.ephemeral_containers, created.ephemeral_containers);
    let resources = serde_json::to_value(&spec.containers[0].resources).unwrap();
    assert_eq!(resources["claims"], json!([{"name": "gpu"}]));
    assert_eq!(resources["requests"], json!({"cpu": "2"}));
}
