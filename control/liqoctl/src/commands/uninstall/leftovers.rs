//! Objects that must be removed before Liqo, because peers or finalizers need its controllers.

use crate::cluster::Cluster;
use anyhow::Result;
use control_api::{Configuration, IP, Network, annotations, labels};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Actions that the user must take first: description and command, with the names of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers(BTreeMap<(&'static str, &'static str), BTreeSet<String>>);

const DISABLE_NETWORKING: (&str, &str) = (
    "disable networking for clusters",
    "liqoctl network reset --remote-kubeconfig FILE (or --remote-cluster-id ID if it is unreachable)",
);
const DISABLE_AUTHENTICATION: (&str, &str) = (
    "disable authentication for clusters",
    "liqoctl unpeer --remote-kubeconfig FILE",
);
const DISABLE_OFFLOADING: (&str, &str) = (
    "disable offloading for clusters",
    "liqoctl unpeer --remote-kubeconfig FILE",
);
const UNOFFLOAD: (&str, &str) = (
    "disable offloading for namespaces",
    "liqoctl unoffload namespace NAME",
);
const DELETE_SLICES: (&str, &str) = (
    "delete resourceslices",
    "kubectl delete resourceslices.authentication.liqo.io -n NAMESPACE NAME",
);
const DELETE_ADDRESSES: (&str, &str) = (
    "delete networks and IPs",
    "kubectl delete networks.ipam.liqo.io,ips.ipam.liqo.io -n NAMESPACE NAME",
);

/// Lists the objects. Kinds that are not served have no objects.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn find(cluster: &Cluster) -> Result<Leftovers> {
    let dynamic = |version: &str, kind: &str, plural: &str| {
        let (group, version) = version.split_once('/').unwrap_or_default();
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::<DynamicObject>::all_with(cluster.client.clone(), &resource)
    };
    let foreign = dynamic("core.liqo.io/v1beta1", "ForeignCluster", "foreignclusters");
    let offloading = dynamic(
        "offloading.liqo.io/v1beta1",
        "NamespaceOffloading",
        "namespaceoffloadings",
    );
    let slices = dynamic(
        "authentication.liqo.io/v1beta1",
        "ResourceSlice",
        "resourceslices",
    );
    let configurations = Api::<Configuration>::all(cluster.client.clone());
    let networks = Api::<Network>::all(cluster.client.clone());
    let ips = Api::<IP>::all(cluster.client.clone());
    let (foreign, offloading, slices, configurations, networks, ips) = tokio::try_join!(
        cluster.list(&foreign, "ForeignClusters", ""),
        cluster.list(&offloading, "NamespaceOffloadings", ""),
        cluster.list(&slices, "ResourceSlices", ""),
        cluster.list(&configurations, "Configurations", ""),
        cluster.list(&networks, "Networks", ""),
        cluster.list(&ips, "IPs", ""),
    )?;

    let mut found = Leftovers::default();
    for cluster in &foreign {
        found.add_modules(cluster);
    }
    for offloading in &offloading {
        found.add(UNOFFLOAD, offloading.namespace().unwrap_or_default());
    }
    for slice in &slices {
        found.add(DELETE_SLICES, full_name(slice));
    }
    for configuration in &configurations {
        let peer = configuration
            .labels()
            .get(labels::REMOTE_CLUSTER_ID)
            .cloned();
        found.add(
            DISABLE_NETWORKING,
            peer.unwrap_or_else(|| configuration.name_any()),
        );
    }
    networks
        .iter()
        .filter(|network| is_stuck(*network))
        .for_each(|network| {
            found.add(DELETE_ADDRESSES, full_name(network));
        });
    ips.iter().filter(|ip| is_stuck(*ip)).for_each(|ip| {
        found.add(DELETE_ADDRESSES, full_name(ip));
    });
    Ok(found)
}

impl Leftovers {
    /// Returns whether no action is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, action: (&'static str, &'static str), name: String) {
        self.0.entry(action).or_default().insert(name);
    }

    /// Adds the enabled modules of a ForeignCluster, except networking: its status follows the Configurations, which are
    /// listed themselves, with a delay while no controller manager leads.
    fn add_modules(&mut self, foreign: &DynamicObject) {
        for (module, action) in [
            ("authentication", DISABLE_AUTHENTICATION),
            ("offloading", DISABLE_OFFLOADING),
        ] {
            if foreign.data["status"]["modules"][module]["enabled"] == true {
                self.add(action, foreign.name_any());
            }
        }
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((action, command), names) in &self.0 {
            write!(out, "\n\n{action}:")?;
            for name in names {
                write!(out, "\n- {name}")?;
            }
            write!(out, "\nby: {command}")?;
        }
        Ok(())
    }
}

/// Returns whether a finalizer would keep an object after the removal of its controller.
fn is_stuck(object: &impl kube::ResourceExt) -> bool {
    let is_preinstalled = object.annotations().contains_key(annotations::PREINSTALLED);
    !is_preinstalled && !object.finalizers().is_empty()
}

fn full_name(object: &impl kube::ResourceExt) -> String {
    let namespace = object.namespace().unwrap_or_default();
    format!("{namespace}/{}", object.name_any())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn the_list_is_upstreams_with_the_commands() {
        let foreign: DynamicObject = from_value(json!({
            "apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": {"name": "milan"},
            "status": {"modules": {
                "networking": {"enabled": true}, "authentication": {"enabled": true}, "offloading": {"enabled": false},
            }},
        }))
        .unwrap();
        let mut found = Leftovers::default();

        found.add_modules(&foreign);

        let text = found.to_string();
        assert!(
            text.starts_with(
                "\n\ndisable authentication for clusters:\n- milan\nby: liqoctl unpeer"
            )
        );
        assert!(!text.contains("offloading") && !text.contains("networking"));
    }

    #[test]
    fn only_finalizers_of_other_objects_are_reported() {
        let network = |metadata| -> Network {
            from_value(json!({
                "apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
                "metadata": metadata, "spec": {"cidr": "10.0.0.0/16"},
            }))
            .unwrap()
        };
        let finalizers = json!({"name": "a", "finalizers": ["network.ipam.liqo.io/finalizer"]});
        let preinstalled = json!({
            "name": "a", "finalizers": ["x/y"], "annotations": {"liqo.io/preinstalled": "true"},
        });

        assert!(is_stuck(&network(finalizers)));
        assert!(!is_stuck(&network(preinstalled)));
        assert!(!is_stuck(&network(json!({"name": "a"}))));
    }
}
