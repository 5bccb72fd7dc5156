//! Shows the ClusterRoles by which an administrator gives all consumers rights that they must not have.

use super::boxes::Item;
use crate::cluster::Cluster;
use crate::failure::if_permitted;
use anyhow::Result;
use control_api::labels::AGGREGATE_TO_REMOTE;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Any group, resource or verb.
const ANY: &str = "*";

/// A ClusterRole with rights that let a consumer leave its namespaces, or read what is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    role: String,
    /// The resources, with their groups.
    resources: BTreeSet<String>,
}

/// Returns such ClusterRoles with the label by which Kubernetes adds their rights to those of all consumers; none if the user may
/// not list ClusterRoles.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn find(cluster: &Cluster) -> Result<Vec<Excess>> {
    let api = Api::<ClusterRole>::all(cluster.client.clone());
    let selector = format!("{AGGREGATE_TO_REMOTE}=true");
    let roles = cluster.list(&api, "ClusterRoles", &selector).await;
    let roles = if_permitted(roles)?.unwrap_or_default();

    Ok(roles.iter().filter_map(Excess::of).collect())
}

impl Excess {
    fn of(role: &ClusterRole) -> Option<Self> {
        let rules = role.rules.iter().flatten();
        let resources: BTreeSet<_> = rules.flat_map(excessive).collect();

        (!resources.is_empty()).then(|| Self {
            role: role.name_any(),
            resources,
        })
    }

    fn names(&self) -> String {
        Vec::from_iter(self.resources.iter().cloned()).join(", ")
    }
}

/// Returns the resources of a rule that no consumer must have.
fn excessive(rule: &PolicyRule) -> Vec<String> {
    let groups = rule.api_groups.iter().flatten();
    let resources = || rule.resources.iter().flatten();
    let pairs = groups.flat_map(|group| resources().map(move |it| (group.as_str(), it.as_str())));
    let is_excessive = |group: &str, resource: &str| {
        let is_core = group.is_empty() || group == ANY;
        let is_of_core = matches!(resource, "secrets" | "serviceaccounts/token")
            || resource.starts_with("pods/")
            || resource.starts_with(ANY);
        group == RBAC || group == ANY || is_core && is_of_core
    };
    let excessive = pairs.filter(|(group, resource)| is_excessive(group, resource));

    excessive
        .map(|(group, resource)| match group {
            "" => resource.to_owned(),
            group => format!("{resource}.{group}"),
        })
        .collect()
}

/// Returns the ClusterRoles for `-o` and `--get`.
pub(super) fn value(found: &[Excess]) -> Value {
    let of = |it: &Excess| json!({"clusterRole": it.role, "resources": it.resources});
    found.iter().map(of).collect()
}

/// Returns the ClusterRoles for boxes.
pub(super) fn items(found: &[Excess]) -> Vec<Item> {
    let mut items = vec![
        Item::Line(
            "These ClusterRoles grant rights to all consumers. Remove the rules, or the".to_owned(),
        ),
        Item::Line(format!("label {AGGREGATE_TO_REMOTE}.")),
    ];
    items.extend(found.iter().map(|it| Item::entry(&it.role, it.names())));
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        }
    }

    #[test]
    fn secrets_rbac_and_subresources_of_pods_are_excessive() {
        for (group, resource, name) in [
            ("", "secrets", "secrets"),
            ("", "serviceaccounts/token", "serviceaccounts/token"),
            ("", "pods/exec", "pods/exec"),
            ("", "pods/*", "pods/*"),
            ("", "*", "*"),
            ("*", "secrets", "secrets.*"),
            ("*", "widgets", "widgets.*"),
            (RBAC, "roles", "roles.rbac.authorization.k8s.io"),
        ] {
            assert_eq!(excessive(&rule(group, resource)), [name]);
        }
        for (group, resource) in [
            ("example.com", "widgets"),
            ("example.com", "secrets"),
            ("example.com", "*"),
            ("", "limitranges"),
        ] {
            assert!(excessive(&rule(group, resource)).is_empty(), "{resource}");
        }
    }

    #[test]
    fn a_role_is_shown_with_its_excessive_resources_only() {
        let role = ClusterRole {
            metadata: kube::core::ObjectMeta {
                name: Some("too-much".to_owned()),
                ..Default::default()
            },
            rules: Some(vec![
                rule("example.com", "widgets"),
                rule("", "secrets"),
                rule("", "pods/exec"),
            ]),
            aggregation_rule: None,
        };
        let found = [Excess::of(&role).unwrap()];

        let expected = json!([{"clusterRole": "too-much", "resources": ["pods/exec", "secrets"]}]);
        assert_eq!(value(&found), expected);
        let entry = Item::entry("too-much", "pods/exec, secrets");
        assert_eq!(items(&found).last(), Some(&entry));
    }
}
