//! A provider that writes a hostile status, and a consumer that requests absurd amounts.

use super::golden;
use super::side::{MOMENT, Side, key, settings};
use crate::offloading::bounds::ENTRIES_MAX;
use control_api::{Quota, ResourceSlice, VirtualNode};
use serde_json::{Map, Value, json};

/// Returns the spec of the VirtualNode for a slice with this status, and the Events.
fn virtual_node(status: &Value, allowed: &[&str]) -> (Value, Vec<String>) {
    let mut settings = settings();
    settings.allowed_node_labels = allowed.iter().map(ToString::to_string).collect();
    let mut rome = Side::with_settings(7, settings);
    rome.put_peer("milan");
    rome.put_identity("milan", "milan", true);
    let mut slice = golden::local();
    for (field, value) in status.as_object().unwrap() {
        slice["status"][field] = value.clone();
    }
    rome.put::<ResourceSlice>(slice);
    rome.run(MOMENT);
    assert!(rome.replanned().is_empty());

    (
        rome.spec::<VirtualNode>(&key("milan", "milan")),
        rome.events(),
    )
}

#[test]
fn reserved_labels_are_left_out_and_named() {
    for label in [
        "kubernetes.io/hostname",
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "node-role.kubernetes.io/control-plane",
        "topology.kubernetes.io/zone",
        "k8s.io/x",
        "a.b.k8s.io/x",
        "liqo.io/type",
        "liqo.io/remote-cluster-id",
        "storage.liqo.io/available",
        "x.topology.liqo.io/zone",
    ] {
        let (spec, events) = virtual_node(&json!({"nodeLabels": {label: "x", "region": "A"}}), &[]);
        assert_eq!(
            spec["labels"],
            json!({"liqo.io/remote-cluster-id": "milan", "region": "A"})
        );
        let named = format!("nodeLabels[{label}] (reserved key)");
        assert!(
            events.len() == 1 && events[0].contains(&named),
            "{events:?}"
        );
        assert!(events[0].starts_with("ResourceSlice milan InvalidStatus: "));
    }
}

#[test]
fn other_labels_and_allowed_ones_are_taken() {
    let labels = json!({
        "region": "A",
        "topology.liqo.io/zone": "1",
        "notkubernetes.io/x": "1",
        "kubernetes.io.example.com/x": "",
        "topology.kubernetes.io/zone": "z",
    });
    let (mut spec, events) = virtual_node(
        &json!({"nodeLabels": labels}),
        &["topology.kubernetes.io/zone"],
    );
    spec["labels"]
        .as_object_mut()
        .unwrap()
        .remove("liqo.io/remote-cluster-id");

    assert_eq!(spec["labels"], labels);
    assert_eq!(events, [""; 0]);
}

#[test]
fn the_cluster_id_cannot_be_replaced_even_if_its_key_is_allowed() {
    let labels = json!({"liqo.io/remote-cluster-id": "naples"});
    let (spec, _) = virtual_node(
        &json!({"nodeLabels": labels}),
        &["liqo.io/remote-cluster-id"],
    );

    assert_eq!(
        spec["labels"],
        json!({"liqo.io/remote-cluster-id": "milan"})
    );
}

#[test]
fn invalid_labels_are_left_out() {
    let labels = json!({
        "": "x",
        "-a": "x",
        "a/b/c": "x",
        "/a": "x",
        "A.example/b": "x",
        "a": "x y",
        "b": "-x",
        "c": "x".repeat(64),
        "d".repeat(64): "x",
        "ok": "",
    });
    let status = json!({"nodeLabels": labels, "nodeSelector": labels});
    let (spec, events) = virtual_node(&status, &[]);

    assert_eq!(
        spec["labels"],
        json!({"liqo.io/remote-cluster-id": "milan", "ok": ""})
    );
    assert_eq!(spec["offloadingPatch"]["nodeSelector"], json!({"ok": ""}));
    assert!(
        events[0].contains("nodeLabels[a] (invalid value)"),
        "{events:?}"
    );
    assert!(events[0].contains(", and 12 more"), "{events:?}");
}

#[test]
fn the_size_of_a_status_is_bounded() {
    let many = |value: Value| {
        let entries = (0..10_000).map(|number| (format!("k{number:05}"), value.clone()));
        Value::Object(entries.collect::<Map<_, _>>())
    };
    let classes = |field: &str| {
        let class = |number| json!({field: format!("c{number}"), "default": true});
        (0..10_000).map(class).collect::<Vec<_>>()
    };
    let status = json!({
        "nodeLabels": many(json!("x")),
        "nodeSelector": many(json!("x")),
        "resources": many(json!("1")),
        "storageClasses": classes("storageClassName"),
        "ingressClasses": classes("ingressClassName"),
        "loadBalancerClasses": classes("loadBalancerClassName"),
    });
    let (spec, events) = virtual_node(&status, &[]);

    let len = |value: &Value| {
        let items = value.as_array().map(Vec::len);
        items.unwrap_or_else(|| value.as_object().unwrap().len())
    };
    assert_eq!(len(&spec["labels"]), ENTRIES_MAX + 1, "and the cluster ID");
    for field in [
        &spec["offloadingPatch"]["nodeSelector"],
        &spec["resourceQuota"]["hard"],
        &spec["storageClasses"],
        &spec["ingressClasses"],
        &spec["loadBalancerClasses"],
    ] {
        assert_eq!(len(field), ENTRIES_MAX);
    }
    assert!(
        spec.to_string().len() < 32 * 1024,
        "{}",
        spec.to_string().len()
    );
    let surplus = 6 * (10_000 - ENTRIES_MAX) - 6;
    assert!(
        events[0].contains("nodeLabels[k00064] (too many)"),
        "{events:?}"
    );
    assert!(
        events[0].contains(&format!(", and {surplus} more")),
        "{events:?}"
    );
    assert!(events[0].len() <= 1024, "{}", events[0].len());
}

#[test]
fn long_and_unprintable_names_do_not_fill_an_event() {
    let name = |number: usize| format!("{number}\n{}", "\u{1b}".repeat(1000));
    let labels: Map<_, _> = (0..10).map(|number| (name(number), json!("x"))).collect();
    let (spec, events) = virtual_node(&json!({"nodeLabels": labels}), &[]);

    assert_eq!(
        spec["labels"],
        json!({"liqo.io/remote-cluster-id": "milan"})
    );
    assert!(
        events[0].len() <= 1024 && !events[0].contains(['\n', '\u{1b}']),
        "{events:?}"
    );
    assert!(
        events[0].contains("offloading.allowedNodeLabels"),
        "{events:?}"
    );
}

#[test]
fn names_of_classes_are_checked() {
    let long = "a".repeat(254);
    let status = json!({
        "storageClasses": [{"storageClassName": "A"}, {"storageClassName": long}, {"storageClassName": "a.b"}],
        "ingressClasses": [{"ingressClassName": "a/b"}, {"ingressClassName": "a-b"}],
        "loadBalancerClasses": [{"loadBalancerClassName": "a/b/c"}, {"loadBalancerClassName": "a/B"}],
    });
    let (spec, events) = virtual_node(&status, &[]);

    assert_eq!(spec["storageClasses"], json!([{"storageClassName": "a.b"}]));
    assert_eq!(spec["ingressClasses"], json!([{"ingressClassName": "a-b"}]));
    assert_eq!(
        spec["loadBalancerClasses"],
        json!([{"loadBalancerClassName": "a/B"}])
    );
    assert!(
        events[0].contains("storageClasses[A] (invalid name), storageClasses[aaa"),
        "{events:?}"
    );
}

#[test]
fn absurd_quantities_are_left_out_on_both_sides() {
    let resources = json!({
        "cpu": "4",
        "a": "-1",
        "b": -1,
        "c": "1e999999999",
        "d": "8Ei",
        "e": "lots",
        "nvidia.com/gpu": 2,
        "not a name": "1",
    });
    let taken = json!({"cpu": "4", "nvidia.com/gpu": "2"});
    let (spec, events) = virtual_node(&json!({"resources": resources}), &[]);
    assert_eq!(spec["resourceQuota"]["hard"], taken);
    let expected = "resources[a] (negative), resources[b] (negative), resources[c] (2^63 or more), \
                    resources[d] (2^63 or more), resources[e] (not a quantity), resources[not a name] (invalid name)";
    assert!(events[0].contains(expected), "{events:?}");

    let mut milan = Side::new(7);
    milan.put_peer("rome");
    let mut slice = golden::replicated();
    slice["status"]["resources"] = resources;
    milan.put::<ResourceSlice>(slice);
    milan.run(MOMENT);
    let quota = milan.spec::<Quota>(&key("rome", "milan-a8a4c692b93b"));
    assert_eq!(quota["resources"], taken);
    assert!(milan.events()[0].contains(expected));
}
