use super::{forged, forged_with, patch};
use crate::pod::tests::context;
use serde_json::{Value, json};

fn preset(value: &str) -> Value {
    json!({"liqo.io/anti-affinity-preset": value})
}

fn own_affinity() -> Value {
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}});
    json!({"affinity": {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
    }})
}

/// The label `pod-template-hash` differs between the revisions of a Deployment.
fn term(labels: &Value) -> Value {
    json!({
        "labelSelector": {"matchLabels": labels},
        "topologyKey": "kubernetes.io/hostname",
    })
}

#[test]
fn without_a_preset_the_affinity_is_dropped() {
    assert_eq!(forged(&own_affinity(), &json!({})).get("affinity"), None);
    assert_eq!(
        forged(&own_affinity(), &preset("unknown")).get("affinity"),
        None
    );
}

#[test]
fn propagate_copies_the_anti_affinity_only() {
    let spec = forged(&own_affinity(), &preset("propagate"));

    let mut expected = own_affinity()["affinity"].clone();
    expected.as_object_mut().unwrap().remove("podAffinity");
    assert_eq!(spec["affinity"], expected);
    assert_eq!(
        forged(&json!({}), &preset("propagate")).get("affinity"),
        None
    );
}

#[test]
fn soft_prefers_other_nodes_than_those_of_pods_with_the_same_labels() {
    let spec = forged(&own_affinity(), &preset("soft"));

    let preferred = json!([{"podAffinityTerm": term(&json!({"app": "web"})), "weight": 1}]);
    assert_eq!(
        spec["affinity"],
        json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    );
}

#[test]
fn hard_requires_other_nodes_than_those_of_pods_with_the_same_labels() {
    let spec = forged(&own_affinity(), &preset("hard"));

    let required = json!([term(&json!({"app": "web"}))]);
    assert_eq!(
        spec["affinity"],
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    );
}

#[test]
fn the_annotation_selects_the_labels() {
    let mut annotations = preset("hard");
    annotations["liqo.io/anti-affinity-labels"] = json!("missing, pod-template-hash");

    let spec = forged(&json!({}), &annotations);

    let required =
        &spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required[0], term(&json!({"pod-template-hash": "5d4f"})));
}

#[test]
fn without_a_common_label_a_preset_does_not_repel_every_pod() {
    for value in ["soft", "hard"] {
        let mut annotations = preset(value);
        annotations["liqo.io/anti-affinity-labels"] = json!("missing");

        assert_eq!(forged(&json!({}), &annotations).get("affinity"), None);
    }
}

#[test]
fn labels_that_are_not_reflected_are_not_compared() {
    let patch = patch(json!({"labelsNotReflected": ["app"]}));

    let spec = forged_with(&context(&patch), &json!({}), &preset("hard"));

    assert_eq!(spec.get("affinity"), None);
}

#[test]
fn the_patchs_node_affinity_is_combined_with_the_preset() {
    let node = json!({"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}],
    }});
    let patch = patch(json!({"affinity": {"nodeAffinity": node}}));

    let without = forged_with(&context(&patch), &own_affinity(), &json!({}));
    let with = forged_with(&context(&patch), &own_affinity(), &preset("hard"));

    assert_eq!(without["affinity"], json!({"nodeAffinity": node}));
    assert_eq!(with["affinity"]["nodeAffinity"], node);
    assert!(with["affinity"]["podAntiAffinity"].is_object());
}
