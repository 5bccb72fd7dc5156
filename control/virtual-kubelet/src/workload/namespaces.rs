//! The namespaces of the provider that namespaces of this cluster are mapped to, and the watches in them.

use super::offloading;
use crate::reflection::namespaces::{FOLLOWED_MAX, State, names};
use crate::settings::Settings;
use control_api::offloading::namespace_map::MappingPhase;
use control_api::{NamespaceMap, ShadowPod, labels};
use control_runtime::{Cache, Cluster, Resource, Selector, WatchChange, WatchId};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// Namespaces of this cluster that the provider has counterparts of, in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Namespaces {
    /// Name at the provider by name in this cluster.
    remote: BTreeMap<String, String>,
    /// Name in this cluster by name at the provider.
    local: BTreeMap<String, String>,
    /// Namespaces of this cluster that are no longer offloaded, so the pods at the provider end.
    withdrawn: BTreeSet<String>,
}

impl Namespaces {
    /// Returns the namespaces that the provider has, by the NamespaceMap.
    pub(crate) fn new(map: Option<&NamespaceMap>) -> Self {
        let mappings = map.and_then(|it| it.status.as_ref());
        let mappings = mappings.into_iter().flat_map(|it| &it.current_mapping);
        let mut namespaces = Self::default();
        for (local, mapping) in mappings {
            let desired = map.and_then(|it| it.spec.desired_mapping.get(local));
            let is_accepted = mapping.phase == Some(MappingPhase::Accepted);
            let Some(remote) = mapping
                .remote_namespace
                .as_ref()
                .filter(|it| is_accepted && Some(*it) == desired)
            else {
                continue;
            };
            namespaces.add(local, remote);
        }
        // A deleted NamespaceMap ends with the virtual nodes, which end their pods before.
        let map = map.filter(|it| it.metadata.deletion_timestamp.is_none());
        let desired = map
            .into_iter()
            .flat_map(|it| it.spec.desired_mapping.values());
        let desired: BTreeSet<&str> = desired.map(String::as_str).collect();
        for local in map.into_iter().flat_map(names) {
            if let State::Withdrawn(remote) = State::of(map, local)
                && !desired.contains(remote)
                && namespaces.remote.len() < FOLLOWED_MAX
                && namespaces.add(local, remote)
            {
                namespaces.withdrawn.insert(local.to_owned());
            }
        }

        namespaces
    }

    /// Adds a namespace; returns whether it was added. Two namespaces never share one, whatever the provider says.
    fn add(&mut self, local: &str, remote: &str) -> bool {
        if self.local.contains_key(remote) {
            return false;
        }
        self.remote.insert(local.to_owned(), remote.to_owned());
        self.local.insert(remote.to_owned(), local.to_owned());
        true
    }

    /// Returns the namespace of the provider.
    pub(crate) fn remote(&self, local: &str) -> Option<&str> {
        self.remote.get(local).map(String::as_str)
    }

    /// Returns the namespace of this cluster.
    pub(super) fn local(&self, remote: &str) -> Option<&str> {
        self.local.get(remote).map(String::as_str)
    }

    /// Returns whether a namespace of this cluster is no longer offloaded, and the provider still has its counterpart.
    pub(super) fn is_withdrawn(&self, local: &str) -> bool {
        self.withdrawn.contains(local)
    }

    /// Returns the namespaces of this cluster whose mapping differs.
    pub(super) fn changed(&self, other: &Self) -> BTreeSet<String> {
        let names = self.remote.keys().chain(other.remote.keys());
        let differs = |name: &&String| {
            self.remote.get(*name) != other.remote.get(*name)
                || self.is_withdrawn(name) != other.is_withdrawn(name)
        };

        names.filter(differs).cloned().collect()
    }

    /// Returns the changes of watches from those of `before`.
    pub(super) fn watches(&self, before: &Self, settings: &Settings) -> Vec<WatchChange> {
        let added = self
            .local
            .keys()
            .filter(|it| !before.local.contains_key(*it));
        let removed = before
            .local
            .keys()
            .filter(|it| !self.local.contains_key(*it));
        let added = added
            .flat_map(|it| objects(settings, it))
            .map(WatchChange::Add);
        let removed = removed
            .flat_map(|it| objects(settings, it))
            .map(WatchChange::Remove);
        let is_new = |it: &&String| !before.remote.contains_key(*it);
        let is_gone = |it: &&String| !self.remote.contains_key(*it);
        let follow = self.remote.keys().filter(is_new);
        let follow = follow.map(|it| WatchChange::Add(offloading::watch(it)));
        let leave = before.remote.keys().filter(is_gone);
        let leave = leave.map(|it| WatchChange::Remove(offloading::watch(it)));

        added.chain(removed).chain(follow).chain(leave).collect()
    }
}

/// Returns the watches of this Node's objects in a namespace of the provider.
fn objects(settings: &Settings, namespace: &str) -> [WatchId; 2] {
    [Resource::of::<ShadowPod>(), Resource::of::<Pod>()].map(|resource| WatchId {
        cluster: Cluster::remote(&settings.provider),
        resource,
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: format!("{}={}", labels::NODE_NAME, settings.node),
            ..Selector::default()
        },
    })
}

/// Returns whether this Node's objects in a namespace of the provider are known.
pub(super) fn is_listed(settings: &Settings, namespace: &str, cache: &Cache) -> bool {
    objects(settings, namespace)
        .iter()
        .all(|it| cache.is_synced(it))
}

#[cfg(test)]
mod tests {
    use super::Namespaces;
    use control_api::NamespaceMap;
    use serde_json::{Value, from_value, json};

    /// Returns the namespaces of a NamespaceMap; the provider accepts each mapping of `current`.
    fn namespaces(desired: &Value, current: &[(&str, &str)]) -> Namespaces {
        let accepted = |remote| json!({"phase": "Accepted", "remoteNamespace": remote});
        let current: Value = current
            .iter()
            .map(|(local, remote)| ((*local).to_owned(), accepted(remote)))
            .collect();
        let map: NamespaceMap = from_value(json!({
            "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
            "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
            "spec": {"desiredMapping": desired},
            "status": {"currentMapping": current},
        }))
        .unwrap();
        Namespaces::new(Some(&map))
    }

    #[test]
    fn the_provider_does_not_choose_the_remote_name() {
        let desired = json!({"shop": "shop-rome"});
        let mapped = namespaces(&desired, &[("shop", "shop-rome")]);
        assert_eq!(mapped.remote("shop"), Some("shop-rome"));

        let current = [("shop", "kube-system"), ("books", "shop-rome")];
        assert_eq!(namespaces(&desired, &current), Namespaces::default());
    }

    #[test]
    fn a_withdrawn_namespace_is_followed_until_the_provider_has_it_no_longer() {
        let before = namespaces(&json!({"shop": "shop-rome"}), &[("shop", "shop-rome")]);
        let after = namespaces(&json!({}), &[("shop", "shop-rome")]);

        assert!(!before.is_withdrawn("shop") && after.is_withdrawn("shop"));
        assert_eq!(after.remote("shop"), Some("shop-rome"));
        assert_eq!(after.changed(&before), ["shop".to_owned()].into());
        assert_eq!(namespaces(&json!({}), &[]), Namespaces::default());
    }

    #[test]
    fn a_withdrawn_namespace_does_not_take_the_remote_one_of_another() {
        let desired = json!({"shop": "shared"});
        let mapped = namespaces(&desired, &[("books", "shared"), ("shop", "shared")]);

        assert_eq!(mapped.local("shared"), Some("shop"));
        assert!(!mapped.is_withdrawn("books"));
    }

    #[test]
    fn two_namespaces_never_share_a_remote_one() {
        let desired = json!({"books": "shared", "shop": "shared"});
        let shared = namespaces(&desired, &[("books", "shared"), ("shop", "shared")]);

        assert_eq!(shared.remote("books"), Some("shared"));
        assert_eq!(shared.remote("shop"), None);
        assert_eq!(shared.local("shared"), Some("books"));
    }
}
