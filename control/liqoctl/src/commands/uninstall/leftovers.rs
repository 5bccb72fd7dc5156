//! Objects that must be removed before Liqo, because peers or finalizers need its controllers.

mod peering;

use crate::cluster::Cluster;
use crate::tenant;
use anyhow::Result;
use control_api::{Configuration, IP, Network, annotations, labels};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Actions that the user must take first, with the names of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers(BTreeMap<Action, BTreeSet<String>>);

/// An action of the user. It may need the results of the actions before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    EnableControllers,
    Unoffload,
    EndAtConsumer,
    DisableOffloading,
    DisableAuthentication,
    DeleteSlices,
    DisableNetworking,
    DeleteConfigurations,
    DeleteAddresses,
}

impl Action {
    fn description(self) -> &'static str {
        match self {
            Self::EnableControllers => {
                "enable authentication, because only its controllers remove the finalizers of these objects"
            }
            Self::Unoffload => "disable offloading for namespaces",
            Self::EndAtConsumer => "end the peerings of consumers, which are clusters",
            Self::DisableOffloading => "disable offloading for clusters",
            Self::DisableAuthentication => "disable authentication for clusters",
            Self::DeleteSlices => "delete resourceslices",
            Self::DisableNetworking => "disable networking for clusters",
            Self::DeleteConfigurations => {
                "delete network configurations outside of the tenant namespace of their peer"
            }
            Self::DeleteAddresses => "delete networks and IPs",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::EnableControllers => {
                "liqoctl install --set authentication.enabled=true, with the other flags of the installation (or liqoctl uninstall --purge --force, which removes the finalizers and leaves replicas at providers)"
            }
            Self::Unoffload => "liqoctl unoffload namespace NAME",
            Self::EndAtConsumer => {
                "liqoctl unpeer --kubeconfig CONSUMER --remote-kubeconfig FILE (FILE is that of this cluster; or, on this side alone: liqoctl force unpeer NAME)"
            }
            Self::DisableOffloading | Self::DisableAuthentication => {
                "liqoctl unpeer --remote-kubeconfig FILE (or liqoctl force unpeer NAME if it is unreachable)"
            }
            Self::DeleteSlices => {
                "kubectl delete resourceslices.authentication.liqo.io -n NAMESPACE NAME"
            }
            Self::DisableNetworking => {
                "liqoctl network reset --remote-kubeconfig FILE (or --remote-cluster-id ID if it is unreachable)"
            }
            Self::DeleteConfigurations => {
                "kubectl delete configurations.networking.liqo.io -n NAMESPACE NAME"
            }
            Self::DeleteAddresses => {
                "kubectl delete networks.ipam.liqo.io,ips.ipam.liqo.io -n NAMESPACE NAME"
            }
        }
    }
}

/// Lists the objects. Kinds that are not served have no objects. Liqo is in `namespace`.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn find(cluster: &Cluster, namespace: &str) -> Result<Leftovers> {
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
    let (foreign, offloading, slices, configurations, networks, ips, tenants, unserved) = tokio::try_join!(
        cluster.list(&foreign, "ForeignClusters", ""),
        cluster.list(&offloading, "NamespaceOffloadings", ""),
        cluster.list(&slices, "ResourceSlices", ""),
        cluster.list(&configurations, "Configurations", ""),
        cluster.list(&networks, "Networks", ""),
        cluster.list(&ips, "IPs", ""),
        tenant::all(cluster),
        peering::without_controller(cluster, namespace),
    )?;

    let mut found = Leftovers::default();
    for object in unserved {
        found.add(Action::EnableControllers, object);
    }
    for cluster in &foreign {
        found.add_modules(cluster);
    }
    for offloading in &offloading {
        found.add(
            Action::Unoffload,
            offloading.metadata.namespace.clone().unwrap_or_default(),
        );
    }
    for slice in &slices {
        found.add_slice(slice);
    }
    for configuration in &configurations {
        found.add_configuration(configuration, &tenants);
    }
    let networks = networks.iter().filter(|it| is_stuck(*it)).map(full_name);
    let ips = ips.iter().filter(|it| is_stuck(*it)).map(full_name);
    for name in networks.chain(ips) {
        found.add(Action::DeleteAddresses, name);
    }
    Ok(found)
}

impl Leftovers {
    /// Returns whether no action is needed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, action: Action, name: String) {
        self.0.entry(action).or_default().insert(name);
    }

    /// Adds the enabled modules of a ForeignCluster, except networking: its status follows the Configurations, which are
    /// listed themselves, with a delay while no controller manager leads.
    fn add_modules(&mut self, foreign: &DynamicObject) {
        let status = &foreign.data["status"];
        let is_enabled = |module: &str| status["modules"][module]["enabled"] == true;
        let name = || foreign.metadata.name.clone().unwrap_or_default();
        let role = status["role"].as_str();
        if is_enabled("authentication") {
            if matches!(role, Some("Consumer" | "ConsumerAndProvider")) {
                self.add(Action::EndAtConsumer, name());
            }
            if role != Some("Consumer") {
                self.add(Action::DisableAuthentication, name());
            }
        }
        if is_enabled("offloading") {
            self.add(Action::DisableOffloading, name());
        }
    }

    /// Adds a ResourceSlice. A consumer creates its replicas again.
    fn add_slice(&mut self, slice: &DynamicObject) {
        let label = |key: &str| slice.metadata.labels.as_ref()?.get(key);
        let is_replica = label(labels::REPLICATED).is_some_and(|it| it == "true");
        let consumer = label(labels::ORIGIN_ID).filter(|_| is_replica);
        match consumer {
            Some(consumer) => self.add(Action::EndAtConsumer, consumer.clone()),
            None => self.add(Action::DeleteSlices, full_name(slice)),
        }
    }

    /// Adds a Configuration. `network reset` finds one in the tenant namespace of its peer only. `tenants` are the tenant
    /// namespaces with the cluster IDs of their peers.
    fn add_configuration(&mut self, configuration: &Configuration, tenants: &[(String, String)]) {
        let metadata = &configuration.metadata;
        let labels = metadata.labels.as_ref();
        let peer = labels.and_then(|it| it.get(labels::REMOTE_CLUSTER_ID));
        let mut tenants = tenants.iter();
        let is_of_tenant = tenants.any(|(namespace, id)| {
            metadata.namespace.as_ref() == Some(namespace) && peer == Some(id)
        });
        match peer.filter(|_| is_of_tenant) {
            Some(peer) => self.add(Action::DisableNetworking, peer.clone()),
            None => self.add(Action::DeleteConfigurations, full_name(configuration)),
        }
    }
}

impl fmt::Display for Leftovers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (action, names) in &self.0 {
            write!(out, "\n\n{}:", action.description())?;
            for name in names {
                write!(out, "\n- {name}")?;
            }
            write!(out, "\nby: {}", action.command())?;
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
mod tests;
