//! Everything the manager knows of the cluster, and which work a change makes.

use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use control_api::{
    Configuration, Connection, ForeignCluster, GatewayClient, GatewayServer, IP, Network, PublicKey,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) use cluster::{Cluster, is_real, is_terminating};
pub(crate) use link::{IndexEntry, IndexKey};
pub(crate) use store::{Store, Stored, keep};

mod cluster;
mod kinds;
mod link;
mod prune;
mod store;
mod tenant;

#[cfg(test)]
mod tests;

/// The objects of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// Namespace of Liqo itself.
    pub(crate) namespace: String,
    /// Namespaces that the settings name as tenant namespaces of any peer.
    pub(crate) named_tenants: Vec<String>,
    pub(crate) networks: Store<Network>,
    pub(crate) ips: Store<IP>,
    pub(crate) configurations: Store<Configuration>,
    pub(crate) servers: Store<GatewayServer>,
    pub(crate) clients: Store<GatewayClient>,
    pub(crate) public_keys: Store<PublicKey>,
    pub(crate) connections: Store<Connection>,
    pub(crate) foreign_clusters: Store<ForeignCluster>,
    pub(crate) nodes: Store<Node>,
    pub(crate) pods: Store<Pod>,
    pub(crate) namespaces: Store<Namespace>,
    pub(crate) config_maps: Store<ConfigMap>,
    pub(crate) secrets: Store<Secret>,
    pub(crate) role_bindings: Store<RoleBinding>,
    pub(crate) gateway_keys: Store<Secret>,
    pub(crate) services: Store<Service>,
    pub(crate) slices: Store<EndpointSlice>,
    pub(crate) deployments: Store<Deployment>,
    /// What concerns everything, derived from the above.
    pub(crate) cluster: Cluster,
    /// Namespaces whose Secrets have been listed.
    readable: BTreeSet<String>,
    /// Secrets that no watch tells of, as they were when a plan asked for them.
    pub(crate) looked_up: BTreeMap<Key, Option<Secret>>,
    /// Why the API server would not take a Service of the gateway, by what was asked for.
    pub(crate) refused_services: BTreeMap<String, String>,
    links: BTreeSet<IndexEntry>,
}

impl World {
    /// Puts an object, and returns the tasks that this causes.
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        key: &Key,
        object: Arc<dyn Any + Send + Sync>,
    ) -> BTreeSet<WorkItem> {
        if kind == Kind::Secret {
            self.looked_up.remove(key);
        }
        self.change(kind, key, |world| world.put_into_store(kind, key, object))
    }

    /// Removes an object that was deleted, and returns the tasks that this causes.
    pub(crate) fn remove(&mut self, kind: Kind, key: &Key) -> BTreeSet<WorkItem> {
        self.change(kind, key, |world| {
            world.remove_from_store(kind, key);
            true
        })
    }

    /// Notes that the Secrets of a namespace were listed, and returns the tasks that this causes.
    pub(crate) fn secrets_listed(&mut self, namespace: &str) -> BTreeSet<WorkItem> {
        if self.readable.insert(namespace.to_owned()) {
            self.tasks_of_gateways(namespace)
        } else {
            BTreeSet::new()
        }
    }

    /// Returns the objects that have to do with something, by kind and key.
    pub(crate) fn linked(&self, subject: &IndexKey) -> impl Iterator<Item = (Kind, &Key)> {
        link::of(&self.links, subject)
    }

    /// Returns all work there may be: what a manager that has just begun cannot know to be done.
    pub(crate) fn all_tasks(&self) -> BTreeSet<WorkItem> {
        let links = self.links.iter().flat_map(|link| self.tasks_of_link(link));
        let nodes = self
            .nodes
            .iter()
            .map(|(key, _)| WorkItem::Node(key.name.clone()));
        let networks = self
            .networks
            .iter()
            .map(|(key, _)| WorkItem::Network(key.clone()));
        let ips = self
            .ips
            .iter()
            .flat_map(|(key, _)| self.own_tasks(Kind::Ip, key));
        let configurations = self
            .configurations
            .iter()
            .map(|(key, _)| WorkItem::Configuration(key.clone()));
        let keys = self
            .gateway_keys
            .iter()
            .flat_map(|(_, keys)| self.tasks_of_gateway_keys(None, Some(keys)));

        let tenants = self.namespaces.iter();
        let tenants = tenants.map(|(key, _)| WorkItem::Tenant(key.name.clone()));

        links
            .chain(tenants)
            .chain(nodes)
            .chain(networks)
            .chain(ips)
            .chain(configurations)
            .chain(keys)
            .collect()
    }

    /// Returns the uid of an object.
    pub(crate) fn uid(&self, kind: Kind, key: &Key) -> Option<String> {
        self.meta(kind, key)?.uid.clone()
    }

    /// Changes one object, updates the links and returns the tasks that this causes.
    fn change(
        &mut self,
        kind: Kind,
        key: &Key,
        change: impl FnOnce(&mut Self) -> bool,
    ) -> BTreeSet<WorkItem> {
        let old_node = self.nodes.get(key).filter(|_| kind == Kind::Node).cloned();
        let old_keys = self.gateway_keys.get(key);
        let old_keys = old_keys.filter(|_| kind == Kind::GatewayKeys).cloned();
        let before = link::links(self, kind, key);
        let mut tasks = self.tasks_about(kind, key, &before);
        if !change(self) {
            return BTreeSet::new();
        }
        for link in &before {
            self.links.remove(link);
        }
        let after = link::links(self, kind, key);
        self.links.extend(after.iter().cloned());
        tasks.extend(self.tasks_about(kind, key, &after));
        if kind == Kind::Node {
            let new = self.nodes.get(key).cloned();
            tasks.extend(self.tasks_of_node(key, old_node.as_ref(), new.as_ref()));
        } else if kind == Kind::GatewayKeys {
            let new = self.gateway_keys.get(key);
            tasks.extend(self.tasks_of_gateway_keys(old_keys.as_ref(), new));
        } else if Cluster::depends_on(self, kind, key) {
            let nodes = std::mem::take(&mut self.cluster.nodes);
            let cluster = Cluster::of(self, nodes);
            let old = std::mem::replace(&mut self.cluster, cluster);
            tasks.extend(self.tasks_of_cluster(&old));
        }

        tasks
    }

    fn tasks_about(&self, kind: Kind, key: &Key, links: &[IndexEntry]) -> BTreeSet<WorkItem> {
        let linked = links.iter().flat_map(|link| self.tasks_of_link(link));
        linked.chain(self.own_tasks(kind, key)).collect()
    }
}
