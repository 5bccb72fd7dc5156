//! The objects of the local cluster in the runtime's cache, and the work items that a change causes.

use crate::network::item::WorkItem;
use crate::network::kind::{Key, Kind};
use control_api::{
    Configuration, Connection, GatewayClient, GatewayServer, IP, Network, PublicKey,
};
use control_runtime::{Cache, Change, Cluster as ClusterName, Entry, Objects};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use allocated::address;
pub(crate) use cluster::{ADDRESS_TYPES, Cluster, id_of, is_real, is_terminating};
pub(crate) use index::{IndexKey, with_indexes};
pub(crate) use prune::MIRROR_POD;
pub(crate) use stored::{Stored, keep};
pub(crate) use tenant::is_bound;

mod allocated;
mod cluster;
mod index;
mod prune;
mod stored;
mod tenant;

/// State that is derived from objects, or that no watch reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived {
    /// Facts about the cluster itself.
    pub(crate) cluster: Cluster,
    /// Namespaces whose Secrets are watched.
    pub(crate) watched: BTreeSet<String>,
    /// Secrets that no watch reports, as read for the plan that requested them.
    pub(crate) looked_up: BTreeMap<Key, Option<Secret>>,
    /// Why the API server refuses a Service of the gateway, by the hash of the request.
    pub(crate) refused_services: BTreeMap<String, String>,
    /// Objects of other users whose name is that of an object to create. No watch reports them.
    pub(crate) foreign: BTreeMap<(Kind, Key), Entry>,
}

/// The objects of the local cluster.
pub(crate) struct Local<'a> {
    /// Namespace of Liqo itself.
    pub(crate) namespace: &'a str,
    /// Namespaces that the settings allow as tenant namespaces of any peer.
    pub(crate) named_tenants: &'a [String],
    pub(crate) networks: Objects<'a, Network>,
    pub(crate) ips: Objects<'a, IP>,
    pub(crate) configurations: Objects<'a, Configuration>,
    pub(crate) servers: Objects<'a, GatewayServer>,
    pub(crate) clients: Objects<'a, GatewayClient>,
    pub(crate) public_keys: Objects<'a, PublicKey>,
    pub(crate) connections: Objects<'a, Connection>,
    pub(crate) nodes: Objects<'a, Node>,
    pub(crate) pods: Objects<'a, Pod>,
    pub(crate) namespaces: Objects<'a, Namespace>,
    pub(crate) config_maps: Objects<'a, ConfigMap>,
    /// Secrets of gateways, and the Secret that the gateway reads.
    pub(crate) secrets: Objects<'a, Secret>,
    pub(crate) role_bindings: Objects<'a, RoleBinding>,
    pub(crate) services: Objects<'a, Service>,
    pub(crate) slices: Objects<'a, EndpointSlice>,
    pub(crate) deployments: Objects<'a, Deployment>,
    pub(crate) derived: &'a Derived,
    cache: &'a Cache,
}

/// Evaluates an expression with the objects of a kind.
macro_rules! objects {
    ($local:expr, $kind:expr, $objects:ident => $body:expr) => {
        objects!(@ $local, $kind, $objects, $body,
            Network networks, Ip ips, Configuration configurations, GatewayServer servers,
            GatewayClient clients, PublicKey public_keys, Connection connections,
            Node nodes, Pod pods, Namespace namespaces,
            ConfigMap config_maps, Secret secrets, RoleBinding role_bindings, GatewayKeys secrets,
            Service services, ApiServerService services, ProxyService services, EndpointSlice slices, Deployment deployments)
    };
    (@ $local:expr, $kind:expr, $objects:ident, $body:expr, $($name:ident $field:ident),*) => {
        match $kind {
            $(Kind::$name => {
                let $objects = &$local.$field;
                $body
            })*
        }
    };
}
use objects;

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(crate) fn new(
        cache: &'a Cache,
        namespace: &'a str,
        named_tenants: &'a [String],
        derived: &'a Derived,
    ) -> Self {
        let local = &ClusterName::Local;
        Self {
            namespace,
            named_tenants,
            networks: cache.objects(local),
            ips: cache.objects(local),
            configurations: cache.objects(local),
            servers: cache.objects(local),
            clients: cache.objects(local),
            public_keys: cache.objects(local),
            connections: cache.objects(local),
            nodes: cache.objects(local),
            pods: cache.objects(local),
            namespaces: cache.objects(local),
            config_maps: cache.objects(local),
            secrets: cache.objects(local),
            role_bindings: cache.objects(local),
            services: cache.objects(local),
            slices: cache.objects(local),
            deployments: cache.objects(local),
            derived,
            cache,
        }
    }

    /// Returns the facts about the cluster itself.
    pub(crate) fn cluster(&self) -> &'a Cluster {
        &self.derived.cluster
    }

    /// Returns a Service, or one of another user that blocks a creation.
    pub(crate) fn service(&self, key: &Key) -> Option<&'a Service> {
        let foreign = || self.derived.foreign.get(&(Kind::Service, key.clone()));
        (self.services.get(key)).or_else(|| foreign()?.get())
    }

    /// Returns an EndpointSlice, or one of another user that blocks a creation.
    pub(crate) fn slice(&self, key: &Key) -> Option<&'a EndpointSlice> {
        let foreign = || {
            self.derived
                .foreign
                .get(&(Kind::EndpointSlice, key.clone()))
        };
        (self.slices.get(key)).or_else(|| foreign()?.get())
    }

    /// Returns a Deployment, or one of another user that blocks a creation.
    pub(crate) fn deployment(&self, key: &Key) -> Option<&'a Deployment> {
        let foreign = || self.derived.foreign.get(&(Kind::Deployment, key.clone()));
        (self.deployments.get(key)).or_else(|| foreign()?.get())
    }

    /// Returns a Secret that a watch reports, or one of another user that blocks a creation.
    pub(crate) fn secret(&self, key: &Key) -> Option<&'a Secret> {
        let foreign = || self.derived.foreign.get(&(Kind::Secret, key.clone()));
        (self.secrets.get(key)).or_else(|| foreign()?.get())
    }

    /// Returns the metadata of an object.
    pub(crate) fn meta(&self, kind: Kind, key: &Key) -> Option<&'a ObjectMeta> {
        objects!(self, kind, objects => objects.get(key).map(|object| &object.metadata))
    }

    /// Returns the work items that a change of an object causes. [`cluster`](Self::cluster) must reflect
    /// the change already.
    pub(crate) fn items_of_change(&self, kind: Kind, change: &Change<'_>) -> BTreeSet<WorkItem> {
        let key = &change.object.key;
        let mut items = self.own_items(kind, key);
        let states: [Vec<IndexKey>; 2] = objects!(self, kind, objects => [
            index::of(objects, change.before()),
            index::of(objects, change.after()),
        ]);
        for index_key in states.iter().flatten() {
            items.extend(self.items_of_entry(index_key, kind, key));
        }
        if kind == Kind::Network {
            for network in [change.before(), change.after()].into_iter().flatten() {
                let cidr = cluster::cidr_of_peer(network);
                items.extend(cidr.into_iter().flat_map(|cidr| self.templates_in(cidr)));
            }
        } else if kind == Kind::GatewayKeys {
            items.extend(self.items_of_gateway_keys(change.before(), change.after()));
        }

        items
    }
}
