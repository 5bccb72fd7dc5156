//! The rights of the controller in the chart.

use super::*;
use control_runtime::rules;
use std::collections::BTreeSet;

/// Output of the chart with all values set.
const RENDERED: &str = include_str!("../../../../../charts/tests/golden/everything.yaml");

#[test]
fn the_charts_role_has_the_rights_on_connections_that_the_registration_needs() {
    let state = Arc::new(Mutex::new(State::new("gw-1")));
    let rules = rules(&Connections(state).resources());
    let needed = rules.values().flatten();
    let needed: BTreeSet<_> = needed.flat_map(|rule| rights(&json!(rule))).collect();
    let roles = RENDERED.split("\n---\n").filter_map(|text| {
        let object: Value = serde_saphyr::from_str(text).ok()?;
        let is_of_gateway = object["metadata"]["name"] == "liqo-gateway";
        (is_of_gateway && object["kind"] == "ClusterRole").then_some(object)
    });

    let granted: BTreeSet<_> = roles
        .flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default())
        .flat_map(|rule| rights(&rule))
        .filter(|(resource, _)| resource.starts_with("connections"))
        .collect();

    assert!(!needed.is_empty());
    assert_eq!(granted, needed);
}

/// Returns each resource with each verb of a rule.
fn rights(rule: &Value) -> Vec<(String, String)> {
    let texts = |field: &str| -> Vec<String> {
        let texts = rule[field].as_array().into_iter().flatten();
        texts
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect()
    };
    let verbs = texts("verbs");
    let resources = texts("resources").into_iter();
    let rights = resources.flat_map(|resource| {
        let right = |verb: &String| (resource.clone(), verb.clone());
        verbs.iter().map(right).collect::<Vec<_>>()
    });

    rights.collect()
}
