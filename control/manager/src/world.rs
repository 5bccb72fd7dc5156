//! Everything the manager knows of the cluster, and which work a change makes.

use crate::kind::{Key, Kind};
use crate::task::Task;
use control_api::{
    Configuration, Connection, ForeignCluster, GatewayClient, GatewayServer, IP, Network, PublicKey,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::DynamicObject;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use cluster::{Cluster, is_going, is_real};
pub(crate) use link::{Link, Subject};
pub(crate) use store::{Store, Stored, Unreadable, key_of};

mod cluster;
mod kinds;
mod link;
mod store;
mod strip;
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
    links: BTreeSet<Link>,
    /// What each watch has told of, to notice what is gone after a gap.
    present: BTreeMap<Listing, BTreeSet<Key>>,
    relisted: BTreeMap<Listing, BTreeSet<Key>>,
}

/// What one watch lists: a kind, and the namespace where the watch is of one namespace of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Listing {
    pub(crate) kind: Kind,
    /// Empty unless the kind is watched in each tenant namespace.
    pub(crate) namespace: String,
}

impl Listing {
    /// Returns the list that the object of a key is on.
    pub(crate) fn of(kind: Kind, key: &Key) -> Self {
        if kind == Kind::Secret {
            Self::secrets(&key.namespace)
        } else {
            Self::all(kind)
        }
    }

    /// Returns the list of all objects of a kind.
    pub(crate) fn all(kind: Kind) -> Self {
        Self {
            kind,
            namespace: String::new(),
        }
    }

    /// Returns the list of the Secrets of a namespace.
    pub(crate) fn secrets(namespace: &str) -> Self {
        Self {
            kind: Kind::Secret,
            namespace: namespace.to_owned(),
        }
    }
}

impl World {
    /// Takes in the present state of an object, and returns the work that this makes.
    ///
    /// # Errors
    ///
    /// Returns [`Unreadable`] if it does not have the form of its kind.
    pub(crate) fn put(
        &mut self,
        kind: Kind,
        object: DynamicObject,
    ) -> Result<BTreeSet<Task>, Unreadable> {
        let key = key_of(&object.metadata);
        let listing = Listing::of(kind, &key);
        let relisted = self.relisted.get_mut(&listing);
        let is_listed = relisted.is_some_and(|relisted| {
            relisted.insert(key.clone());
            true
        });
        let present = self.present.entry(listing).or_default();
        present.insert(key.clone());
        if kind == Kind::Secret {
            self.looked_up.remove(&key);
        }

        self.change(kind, &key, |world| {
            world.put_into_store(kind, object, is_listed)
        })
    }

    /// Forgets an object that is gone, and returns the work that this makes.
    pub(crate) fn remove(&mut self, kind: Kind, key: &Key) -> BTreeSet<Task> {
        if let Some(present) = self.present.get_mut(&Listing::of(kind, key)) {
            present.remove(key);
        }
        let changed = self.change(kind, key, |world| {
            world.remove_from_store(kind, key);
            Ok::<_, std::convert::Infallible>(true)
        });

        changed.unwrap_or_default()
    }

    /// Takes in that the object of a uid is gone.
    ///
    /// One of the same name that an answer has told of since is another one.
    pub(crate) fn deleted(&mut self, kind: Kind, key: &Key, uid: Option<&str>) -> BTreeSet<Task> {
        let known = self.uid(kind, key);
        if known.is_some() && uid.is_some() && known.as_deref() != uid {
            return BTreeSet::new();
        }

        self.remove(kind, key)
    }

    /// Notes that a watch begins to tell of all objects anew.
    pub(crate) fn begin_list(&mut self, listing: &Listing) {
        self.relisted.insert(listing.clone(), BTreeSet::new());
    }

    /// Notes that a watch has told of all objects; what it has not told of is gone.
    pub(crate) fn end_list(&mut self, listing: &Listing) -> BTreeSet<Task> {
        let listed = self.relisted.remove(listing).unwrap_or_default();
        let present = self.present.get(listing);
        let gone: Vec<_> = present
            .into_iter()
            .flatten()
            .filter(|key| !listed.contains(key))
            .cloned()
            .collect();

        let kind = listing.kind;
        let mut tasks: BTreeSet<_> = gone.iter().flat_map(|key| self.remove(kind, key)).collect();
        if kind == Kind::Secret && self.readable.insert(listing.namespace.clone()) {
            tasks.extend(self.tasks_of_gateways(&listing.namespace));
        }

        tasks
    }

    /// Returns the objects that have to do with something, by kind and key.
    pub(crate) fn linked(&self, subject: &Subject) -> impl Iterator<Item = (Kind, &Key)> {
        link::of(&self.links, subject)
    }

    /// Returns all work there may be: what a manager that has just begun cannot know to be done.
    pub(crate) fn all_tasks(&self) -> BTreeSet<Task> {
        let links = self.links.iter().flat_map(|link| self.tasks_of_link(link));
        let nodes = self
            .nodes
            .iter()
            .map(|(key, _)| Task::Node(key.name.clone()));
        let networks = self
            .networks
            .iter()
            .map(|(key, _)| Task::Network(key.clone()));
        let ips = self
            .ips
            .iter()
            .flat_map(|(key, _)| self.own_tasks(Kind::Ip, key));
        let configurations = self
            .configurations
            .iter()
            .map(|(key, _)| Task::Configuration(key.clone()));
        let keys = self
            .gateway_keys
            .iter()
            .flat_map(|(key, _)| self.own_tasks(Kind::GatewayKeys, key));

        let tenants = self.namespaces.iter();
        let tenants = tenants.map(|(key, _)| Task::Tenant(key.name.clone()));

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

    /// Changes one object, keeps the links and returns the work that this makes.
    fn change<E>(
        &mut self,
        kind: Kind,
        key: &Key,
        change: impl FnOnce(&mut Self) -> Result<bool, E>,
    ) -> Result<BTreeSet<Task>, E> {
        let before = link::links(self, kind, key);
        let mut tasks = self.tasks_about(kind, key, &before);
        if !change(self)? {
            return Ok(BTreeSet::new());
        }
        for link in &before {
            self.links.remove(link);
        }
        let after = link::links(self, kind, key);
        self.links.extend(after.iter().cloned());
        tasks.extend(self.tasks_about(kind, key, &after));
        if Cluster::depends_on(kind) {
            let cluster = Cluster::of(self);
            let old = std::mem::replace(&mut self.cluster, cluster);
            tasks.extend(self.tasks_of_cluster(&old));
        }

        Ok(tasks)
    }

    fn tasks_about(&self, kind: Kind, key: &Key, links: &[Link]) -> BTreeSet<Task> {
        let linked = links.iter().flat_map(|link| self.tasks_of_link(link));
        linked.chain(self.own_tasks(kind, key)).collect()
    }
}
