//! The kinds of objects that a namespace may contain, by discovery.

use crate::cluster::Cluster;
use anyhow::Result;
use kube::Error;
use kube::api::{ApiResource, GroupVersionKind};
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use std::collections::BTreeSet;

/// Group and plural of the kinds that controllers write about other objects, and that Kubernetes removes after a while.
const EPHEMERAL: [(&str, &str); 3] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
];

/// The kinds that an API server serves.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kinds {
    /// Kinds of namespaced objects that can be listed and deleted, in their preferred versions. The core group is first.
    pub(super) served: Vec<ApiResource>,
    /// Group versions that cannot be discovered, each with the reason.
    pub(super) unavailable: Vec<String>,
}

impl Kinds {
    /// Reads the kinds with two requests.
    ///
    /// # Errors
    ///
    /// Returns an error if the API server is unreachable.
    pub(super) async fn discover(cluster: &Cluster) -> Result<Self> {
        let client = &cluster.client;
        let read = tokio::try_join!(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated(),
        );
        match read {
            Ok((core, groups)) => Ok(Self::of(&core.items, &groups.items)),
            Err(Error::Api(status)) => Ok(Self::undiscovered(&status.message)),
            Err(error) => Err(cluster.failed("discover the kinds of objects")(error)),
        }
    }

    /// Returns the kinds of the core group and of the other groups.
    fn of(core: &[APIGroupDiscovery], groups: &[APIGroupDiscovery]) -> Self {
        // Without aggregated discovery, the API server responds with lists that have no items.
        if core.is_empty() || groups.is_empty() {
            return Self::undiscovered("aggregated discovery needs Kubernetes 1.30 or later");
        }
        let mut kinds = Self::default();
        for group in core.iter().chain(groups) {
            kinds.add(group);
        }
        kinds
    }

    fn undiscovered(reason: &str) -> Self {
        Self {
            unavailable: vec![format!("any kind: {reason}")],
            ..Self::default()
        }
    }

    /// Adds the kinds of a group, whose versions are in the order of preference.
    fn add(&mut self, group: &APIGroupDiscovery) {
        let metadata = group.metadata.as_ref();
        let name = metadata.and_then(|it| it.name.as_deref());
        let name = name.unwrap_or_default();
        let mut known = BTreeSet::new();
        for version in &group.versions {
            let number = version.version.as_deref().unwrap_or_default();
            // The extension API server did not respond, and its kinds are not known from before.
            if version.freshness.as_deref() == Some("Stale") && version.resources.is_empty() {
                self.unavailable
                    .push(format!("{name}/{number}: its API server is unavailable"));
            }
            for resource in &version.resources {
                let plural = resource.resource.as_deref().unwrap_or_default();
                if known.insert(plural) && is_content(name, resource) {
                    let kind = resource.response_kind.as_ref();
                    let kind = kind.and_then(|it| it.kind.as_deref()).unwrap_or_default();
                    let gvk = GroupVersionKind::gvk(name, number, kind);
                    self.served
                        .push(ApiResource::from_gvk_with_plural(&gvk, plural));
                }
            }
        }
    }
}

/// Returns whether objects of a kind are content of a namespace, which its deletion would destroy.
fn is_content(group: &str, resource: &APIResourceDiscovery) -> bool {
    let has_verb = |verb: &str| resource.verbs.iter().any(|it| it == verb);
    let plural = resource.resource.as_deref().unwrap_or_default();

    resource.scope.as_deref() == Some("Namespaced")
        && has_verb("list")
        && has_verb("delete")
        && !EPHEMERAL.contains(&(group, plural))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn resource(plural: &str, kind: &str, scope: &str, verbs: &[&str]) -> Value {
        json!({
            "resource": plural, "scope": scope, "verbs": verbs,
            "responseKind": {"group": "", "version": "", "kind": kind},
        })
    }

    fn object(plural: &str, kind: &str) -> Value {
        resource(plural, kind, "Namespaced", &["delete", "get", "list"])
    }

    fn group(name: &str, versions: &[(&str, &[Value])]) -> APIGroupDiscovery {
        let versions = versions.iter().map(|(version, resources)| {
            json!({"version": version, "freshness": "Current", "resources": resources})
        });
        let versions = Vec::from_iter(versions);
        from_value(json!({"metadata": {"name": name}, "versions": versions})).expect("a group")
    }

    fn names(kinds: &Kinds) -> Vec<String> {
        let name = |it: &ApiResource| format!("{} {} {}", it.api_version, it.kind, it.plural);
        kinds.served.iter().map(name).collect()
    }

    #[test]
    fn namespaced_kinds_that_can_be_listed_and_deleted_are_content() {
        let core = group(
            "",
            &[(
                "v1",
                &[
                    resource("bindings", "Binding", "Namespaced", &["create"]),
                    object("configmaps", "ConfigMap"),
                    object("events", "Event"),
                    resource("nodes", "Node", "Cluster", &["delete", "list"]),
                ],
            )],
        );
        let groups = [
            group("events.k8s.io", &[("v1", &[object("events", "Event")])]),
            group(
                "coordination.k8s.io",
                &[("v1", &[object("leases", "Lease")])],
            ),
            group("batch", &[("v1", &[object("cronjobs", "CronJob")])]),
            group(
                "metrics.k8s.io",
                &[(
                    "v1beta1",
                    &[resource(
                        "pods",
                        "PodMetrics",
                        "Namespaced",
                        &["get", "list"],
                    )],
                )],
            ),
        ];

        let kinds = Kinds::of(&[core], &groups);

        let expected = ["v1 ConfigMap configmaps", "batch/v1 CronJob cronjobs"];
        assert_eq!(names(&kinds), expected);
        assert!(kinds.unavailable.is_empty());
    }

    #[test]
    fn a_kind_is_read_in_its_preferred_version() {
        let core = group("", &[("v1", &[object("pods", "Pod")])]);
        let widgets = group(
            "example.com",
            &[
                ("v2", &[object("widgets", "Widget")]),
                (
                    "v1",
                    &[object("widgets", "Widget"), object("gears", "Gear")],
                ),
            ],
        );

        let kinds = Kinds::of(&[core], &[widgets]);

        let expected = [
            "v1 Pod pods",
            "example.com/v2 Widget widgets",
            "example.com/v1 Gear gears",
        ];
        assert_eq!(names(&kinds), expected);
    }

    #[test]
    fn a_group_whose_api_server_is_unavailable_is_named() {
        let core = group("", &[("v1", &[object("pods", "Pod")])]);
        let mut lost = group("example.com", &[("v1", &[])]);
        lost.versions[0].freshness = Some("Stale".to_owned());

        let kinds = Kinds::of(&[core], &[lost]);

        let expected = ["example.com/v1: its API server is unavailable"];
        assert_eq!(kinds.unavailable, expected);
    }

    #[test]
    fn a_response_without_items_is_no_empty_cluster() {
        let pods = group("", &[("v1", &[object("pods", "Pod")])]);

        for kinds in [Kinds::of(&[], &[]), Kinds::of(&[pods], &[])] {
            assert!(kinds.unavailable[0].starts_with("any kind"));
        }
    }
}
