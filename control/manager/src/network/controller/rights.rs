//! Compares the roles of the chart with the rights that the registrations and the runtime need.

use super::registrations::registrations;
use crate::network::plan::tests::settings;
use control_runtime::{Scope, rules};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;
use std::collections::BTreeSet;

/// Output of the chart with all values set.
const RENDERED: &str = include_str!("../../../../../charts/tests/golden/everything.yaml");

/// Role, API group, resource, object name and verb. An empty name stands for all objects.
type Right = (&'static str, String, String, String, String);

const CLUSTER: &str = "ClusterRole liqo-controller-manager";
const TENANT: &str = "ClusterRole liqo-controller-manager-tenant";
const LOCAL: &str = "Role liqo-controller-manager";

/// Rights of requests that no registration is about: role, API group, resource, object name, verbs.
const FURTHER: [(&str, &str, &str, &str, &[&str]); 5] = [
    // Gives itself the rights of a tenant namespace, by a RoleBinding there.
    (
        CLUSTER,
        "rbac.authorization.k8s.io",
        "clusterroles",
        "liqo-controller-manager-tenant",
        &["bind"],
    ),
    // The runtime writes Events.
    (CLUSTER, "events.k8s.io", "events", "", &["create", "patch"]),
    // The runtime elects a leader.
    (LOCAL, "coordination.k8s.io", "leases", "", &["create"]),
    (
        LOCAL,
        "coordination.k8s.io",
        "leases",
        "liqo-controller-manager",
        &["get", "list", "watch", "update"],
    ),
    // Owns what it creates in its namespace.
    (
        LOCAL,
        "apps",
        "deployments",
        "liqo-controller-manager",
        &["get"],
    ),
];

#[test]
fn the_charts_roles_are_the_rights_that_the_manager_needs() {
    let mut settings = settings();
    settings.deployment_image = Some("pause".to_owned());

    let mut needed = BTreeSet::new();
    for (scope, rules) in rules(&registrations(&settings)) {
        let role = match scope {
            Scope::All => CLUSTER,
            Scope::Planned => TENANT,
            Scope::Namespace(namespace) => {
                assert_eq!(namespace, settings.namespace);
                LOCAL
            }
        };
        needed.extend(rules.iter().flat_map(|rule| rights(role, rule)));
    }
    for (role, group, resource, name, verbs) in FURTHER {
        let right = |verb: &&str| {
            let [group, resource, name, verb] = [group, resource, name, *verb].map(str::to_owned);
            (role, group, resource, name, verb)
        };
        needed.extend(verbs.iter().map(right));
    }
    let granted = granted();

    let missing: Vec<_> = needed.difference(&granted).collect();
    let unused: Vec<_> = granted.difference(&needed).collect();
    assert!(
        missing.is_empty() && unused.is_empty(),
        "needed and not granted {missing:#?}, granted and not needed {unused:#?}"
    );
}

/// Returns the rights in the chart's roles of the manager.
fn granted() -> BTreeSet<Right> {
    let mut granted = BTreeSet::new();
    for text in RENDERED.split("\n---\n") {
        let Ok(object) = serde_saphyr::from_str::<Value>(text) else {
            continue;
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let role = format!(
            "{} {}",
            text(&object["kind"]),
            text(&object["metadata"]["name"])
        );
        let Some(role) = [CLUSTER, TENANT, LOCAL].into_iter().find(|it| *it == role) else {
            continue;
        };
        for rule in object["rules"].as_array().into_iter().flatten() {
            let rule: PolicyRule = serde_json::from_value(rule.clone()).unwrap();
            granted.extend(rights(role, &rule));
        }
    }

    granted
}

fn rights(role: &'static str, rule: &PolicyRule) -> Vec<Right> {
    let every = vec![String::new()];
    let names = rule.resource_names.as_ref().unwrap_or(&every);
    let mut rights = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            for name in names {
                let right = |verb: &String| {
                    let [group, resource, name] = [group, resource, name].map(String::clone);
                    (role, group, resource, name, verb.clone())
                };
                rights.extend(rule.verbs.iter().map(right));
            }
        }
    }

    rights
}
