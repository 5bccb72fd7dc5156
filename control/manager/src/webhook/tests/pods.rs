//! Pods in offloaded namespaces.

use super::fixture::{cache, create, decide, is_unchanged, offloaded, patched, refusal};
use crate::webhook::affinity::both;
use crate::webhook::handler::Handler;
use control_api::NamespaceOffloading;
use control_api::node_affinity::{TERMS, terms};
use control_runtime::Cache;
use proptest::prelude::*;
use serde_json::{Value, json};

const HANDLER: Handler = Handler::MutatePod;

fn pod(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "cart"}, "spec": spec})
}

fn toleration() -> Value {
    json!({"key": "virtual-node.liqo.io/not-allowed", "operator": "Exists", "effect": "NoExecute"})
}

fn region(name: &str) -> Value {
    json!({"key": "region", "operator": "In", "values": [name]})
}

fn node_type(operator: &str) -> Value {
    json!({"key": "liqo.io/type", "operator": operator, "values": ["virtual-node"]})
}

fn term(expressions: &[Value]) -> Value {
    json!({"matchExpressions": expressions})
}

fn with_terms(terms: &[Value]) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
    }}})
}

fn selector(strategy: &str, terms: &[Value]) -> Value {
    json!({"podOffloadingStrategy": strategy, "clusterSelector": {"nodeSelectorTerms": terms}})
}

/// Reviews a pod, and checks that a second review changes nothing.
#[track_caller]
fn reviewed(cache: &Cache, object: &Value) -> Value {
    let response = decide(HANDLER, &create(object.clone()), cache);
    let patched = patched(object, &response);
    let again = decide(HANDLER, &create(patched.clone()), cache);
    assert!(is_unchanged(&again), "{again:?}");
    patched
}

#[track_caller]
fn assert_spec(offloading: Value, spec: Value, expected: Value) {
    let cache = offloaded(offloading, Value::Null);
    assert_eq!(reviewed(&cache, &pod(spec))["spec"], expected);
}

#[test]
fn a_pod_of_strategy_local_and_one_of_the_runtime_class_stay_as_they_are() {
    for (strategy, spec) in [
        ("Local", json!({"containers": []})),
        ("Remote", json!({"runtimeClassName": "liqo"})),
        ("LocalAndRemote", json!({"runtimeClassName": "liqo"})),
    ] {
        assert_spec(
            selector(strategy, &[term(&[region("eu")])]),
            spec.clone(),
            spec,
        );
    }
}

#[test]
fn remote_without_a_selector_requires_a_virtual_node() {
    let mut expected = with_terms(&[term(&[node_type("In")])]);
    expected["tolerations"] = json!([toleration()]);

    assert_spec(
        json!({"podOffloadingStrategy": "Remote"}),
        json!({}),
        expected,
    );
}

#[test]
fn remote_adds_the_node_type_to_each_term_of_the_selector() {
    let mut expected = with_terms(&[
        term(&[region("eu"), node_type("In")]),
        term(&[region("us"), node_type("In")]),
    ]);
    expected["tolerations"] = json!([{"key": "a", "operator": "Exists"}, toleration()]);
    let spec = json!({"tolerations": [{"key": "a", "operator": "Exists"}], "affinity": null});

    let terms = [term(&[region("eu")]), term(&[region("us")])];
    assert_spec(selector("Remote", &terms), spec, expected);
}

#[test]
fn local_and_remote_is_the_default_and_only_adds_the_toleration_without_a_selector() {
    for offloading in [json!({}), selector("LocalAndRemote", &[])] {
        assert_spec(
            offloading,
            json!({}),
            json!({"tolerations": [toleration()]}),
        );
    }
}

#[test]
fn local_and_remote_allows_the_selected_clusters_and_nodes_of_this_cluster() {
    let mut expected = with_terms(&[term(&[region("eu")]), term(&[node_type("NotIn")])]);
    expected["tolerations"] = json!([toleration()]);

    let offloading = selector("LocalAndRemote", &[term(&[region("eu")])]);
    assert_spec(offloading, json!({}), expected);
}

#[test]
fn terms_of_the_pod_are_combined_with_each_term_of_the_selector_and_keep_all_fields() {
    let field = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let disk = json!({"key": "disk", "operator": "Exists"});
    let of_pod = [
        json!({"matchExpressions": [disk], "future": 1}),
        json!({"matchFields": [field("a")]}),
    ];
    let imposed = [
        json!({"matchExpressions": [region("eu")], "matchFields": [field("b")]}),
        term(&[region("us")]),
    ];
    let (eu, us) = (
        [region("eu"), node_type("In")],
        [region("us"), node_type("In")],
    );
    let mut expected = with_terms(&[
        json!({"matchExpressions": [disk, eu[0], eu[1]], "matchFields": [field("b")], "future": 1}),
        json!({"matchExpressions": [disk, us[0], us[1]], "future": 1}),
        json!({"matchExpressions": eu, "matchFields": [field("a"), field("b")]}),
        json!({"matchExpressions": us, "matchFields": [field("a")]}),
    ]);
    expected["tolerations"] = json!([toleration()]);

    assert_spec(selector("Remote", &imposed), with_terms(&of_pod), expected);
}

#[test]
fn a_term_that_matches_no_node_stays_so() {
    let mut expected = with_terms(&[json!({})]);
    expected["tolerations"] = json!([toleration()]);
    assert_spec(
        selector("Remote", &[json!({})]),
        json!({}),
        expected.clone(),
    );
    assert_spec(selector("Remote", &[]), with_terms(&[json!({})]), expected);
}

#[test]
fn a_pod_without_namespace_offloading_is_refused_with_a_remedy() {
    let message = refusal(decide(HANDLER, &create(pod(json!({}))), &cache()));

    assert!(message.contains("namespace shop"), "{message}");
    assert!(
        message.contains("liqoctl offload namespace shop"),
        "{message}"
    );
}

#[test]
fn pods_stay_local_while_the_offloading_ends() {
    let mut cache = cache();
    let metadata = json!({
        "name": "offloading", "namespace": "shop",
        "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"],
    });
    let object = json!({"metadata": metadata, "spec": {"podOffloadingStrategy": "Remote"}});
    super::fixture::put::<NamespaceOffloading>(&mut cache, object);

    assert!(is_unchanged(&decide(
        HANDLER,
        &create(pod(json!({}))),
        &cache
    )));
}

#[test]
fn too_many_combinations_are_refused_before_they_take_memory() {
    let many: Vec<_> = (0..100)
        .map(|it| term(&[region(&it.to_string())]))
        .collect();
    let long = term(&[region(&"x".repeat(900_000))]);
    let cache = offloaded(selector("Remote", &many), Value::Null);
    for terms in [many, vec![long]] {
        let message = refusal(decide(HANDLER, &create(pod(with_terms(&terms))), &cache));
        assert!(message.contains("clusterSelector"), "{message}");
        assert!(message.contains("use fewer terms"), "{message}");
    }
}

#[test]
fn repatriation_replaces_the_default_tolerations_only() {
    let of = |taint: &str, seconds: Option<i64>| {
        let mut toleration =
            json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists"});
        toleration["effect"] = "NoExecute".into();
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = seconds.into();
        }
        toleration
    };
    let default = [of("not-ready", Some(300)), of("unreachable", Some(300))];
    let own = [of("not-ready", Some(60)), of("unreachable", Some(300))];
    let all = [json!({"operator": "Exists"})];
    let never = [of("not-ready", None), of("unreachable", None)];
    let hour = [of("not-ready", Some(3600)), of("unreachable", Some(3600))];
    for (annotation, given, expected) in [
        ("never", &default[..], &never[..]),
        ("1h", &default, &hour),
        ("59m59.5s", &default, &hour),
        ("never", &own, &[own[0].clone(), never[1].clone()]),
        ("never", &[], &never),
        ("1h", &all, &all),
        ("soon", &default, &default),
        ("-1h", &default, &default),
    ] {
        let annotations = json!({"liqo.io/repatriation": annotation});
        let cache = offloaded(json!({}), annotations);
        let object = pod(json!({"tolerations": given}));

        let tolerations = reviewed(&cache, &object)["spec"]["tolerations"].clone();

        let tolerations = tolerations.as_array().unwrap().iter();
        let others: Vec<_> = tolerations.filter(|it| **it != toleration()).collect();
        assert_eq!(others, Vec::from_iter(expected), "{annotation} {given:?}");
        let warnings = decide(HANDLER, &create(object), &cache).warnings;
        let is_invalid = ["soon", "-1h"].contains(&annotation);
        assert_eq!(warnings.len(), usize::from(is_invalid), "{warnings:?}");
    }
}

proptest! {
    /// The scheduler is the oracle: a node may run the pod if it matches the pod's terms and the namespace's ones.
    #[test]
    fn a_node_matches_the_combination_if_it_matches_both(
        present in prop::option::of(prop::collection::vec(any_term(), 1..4)),
        imposed in prop::collection::vec(any_term(), 1..4),
    ) {
        let combined = both(present.as_deref(), &imposed).unwrap();

        prop_assert!(!combined.is_empty());
        prop_assert_eq!(both(Some(&combined), &imposed).unwrap(), combined.clone());
        for node in 0..16_u8 {
            let of_pod = present.as_ref().is_none_or(|terms| matches(terms, node));
            let is_allowed = of_pod && matches(&imposed, node);
            prop_assert_eq!(matches(&combined, node), is_allowed, "node {}: {:?}", node, combined);
        }
    }

    #[test]
    fn a_patch_applied_twice_is_that_applied_once(
        strategy in prop::sample::select(vec!["Local", "Remote", "LocalAndRemote"]),
        selected in prop::collection::vec(any_term(), 0..4),
        present in prop::option::of(prop::collection::vec(any_term(), 1..4)),
    ) {
        let cache = offloaded(selector(strategy, &selected), json!({"liqo.io/repatriation": "5m"}));
        let spec = present.map_or(json!({}), |terms| with_terms(&terms));
        let spec = reviewed(&cache, &pod(spec))["spec"].clone();

        let required = TERMS.iter().fold(&spec, |value, name| &value[name]);
        prop_assert_eq!(terms(&spec), required.as_array());
    }
}

/// A term about the bits of a node's number.
fn any_term() -> impl Strategy<Value = Value> {
    let entries = || {
        let entry = (0..4_u8, any::<bool>());
        let entry = entry.prop_map(|(bit, set)| {
            json!({"key": bit.to_string(), "operator": if set { "Exists" } else { "DoesNotExist" }})
        });
        prop::collection::vec(entry, 0..3)
    };
    (entries(), entries()).prop_map(|(expressions, fields)| {
        let mut term = json!({});
        if !expressions.is_empty() {
            term["matchExpressions"] = expressions.into();
        }
        if !fields.is_empty() {
            term["matchFields"] = fields.into();
        }
        term
    })
}

/// Returns whether a node matches one of the terms, by Kubernetes' rules.
fn matches(terms: &[Value], node: u8) -> bool {
    terms.iter().any(|term| {
        let lists = ["matchExpressions", "matchFields"].map(|list| term[list].as_array());
        let mut entries = lists.into_iter().flatten().flatten().peekable();
        entries.peek().is_some()
            && entries.all(|entry| {
                let bit: u8 = entry["key"].as_str().unwrap().parse().unwrap();
                (node >> bit & 1 == 1) == (entry["operator"] == "Exists")
            })
    })
}
