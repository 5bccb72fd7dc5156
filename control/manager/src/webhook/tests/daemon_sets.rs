//! DaemonSets stay off virtual nodes.

use super::fixture::{cache, create, decide, is_unchanged, patched, update};
use crate::webhook::handler::Handler;
use serde_json::{Value, json};

const HANDLER: Handler = Handler::MutateDaemonSet;

fn daemon_set(image: &str, pod: &Value) -> Value {
    let mut template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    template["spec"]["containers"] = json!([{"name": "c", "image": image}]);
    json!({"metadata": {"name": "agent"}, "spec": {"template": template}})
}

fn absent() -> Value {
    json!({"key": "liqo.io/type", "operator": "DoesNotExist"})
}

fn with_terms(terms: &Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}})
}

fn terms(object: &Value) -> &Value {
    let affinity = &object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
}

#[test]
fn a_new_daemon_set_gets_the_expression_in_each_term_and_only_once() {
    let disk = json!({"key": "disk", "operator": "Exists"});
    let named = json!([{"key": "metadata.name", "operator": "In", "values": ["n"]}]);
    for (pod, expected) in [
        (json!({}), json!([{"matchExpressions": [absent()]}])),
        (
            with_terms(&json!([{"matchExpressions": [disk]}, {"matchFields": named}, {}])),
            json!([
                {"matchExpressions": [disk, absent()]},
                {"matchFields": named, "matchExpressions": [absent()]},
                {},
            ]),
        ),
    ] {
        let object = daemon_set("v1", &pod);
        let patched = patched(&object, &decide(HANDLER, &create(object.clone()), &cache()));

        assert_eq!(*terms(&patched), expected);
        let again = decide(HANDLER, &create(patched), &cache());
        assert!(is_unchanged(&again), "{again:?}");
    }
}

#[test]
fn an_update_is_changed_only_if_it_changes_the_template() {
    let (old, new) = (daemon_set("v1", &json!({})), daemon_set("v2", &json!({})));
    let mut labelled = old.clone();
    labelled["metadata"]["labels"] = json!({"c": "d"});

    let unrelated = decide(HANDLER, &update(old.clone(), labelled), &cache());
    assert!(is_unchanged(&unrelated), "{unrelated:?}");
    let response = decide(HANDLER, &update(old.clone(), new.clone()), &cache());
    assert_eq!(
        *terms(&patched(&new, &response)),
        json!([{"matchExpressions": [absent()]}])
    );

    // The expression is put back, so that the stored template does not change.
    let stored = daemon_set(
        "v1",
        &with_terms(&json!([{"matchExpressions": [absent()]}])),
    );
    let response = decide(HANDLER, &update(stored.clone(), old.clone()), &cache());
    assert_eq!(patched(&old, &response), stored);
}

#[test]
fn a_template_that_names_the_label_and_an_annotated_daemon_set_stay_as_they_are() {
    let named = json!([{"matchExpressions": [{"key": "liqo.io/type", "operator": "Exists"}]}]);
    let preferred = json!({"affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": named[0]}],
    }}});
    let mut annotated = daemon_set("v1", &json!({}));
    annotated["metadata"]["annotations"] = json!({"liqo.io/allow-virtual-nodes": "true"});
    let mut declined = annotated.clone();
    declined["metadata"]["annotations"] = json!({"liqo.io/allow-virtual-nodes": "false"});
    for object in [
        daemon_set(
            "v1",
            &json!({"nodeSelector": {"liqo.io/type": "virtual-node"}}),
        ),
        daemon_set("v1", &with_terms(&named)),
        daemon_set("v1", &preferred),
        annotated,
    ] {
        let response = decide(HANDLER, &create(object.clone()), &cache());
        assert!(is_unchanged(&response), "{object}");
    }

    assert!(!is_unchanged(&decide(HANDLER, &create(declined), &cache())));
}
