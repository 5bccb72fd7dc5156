//! Which store holds the objects of a kind.

use super::store::Store;
use super::{Cluster, World};
use crate::network::kind::{Key, Kind};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Calls a method of the store of a kind.
macro_rules! store {
    ([$($world:tt)+] $kind:expr, $($call:tt)+) => {
        match $kind {
            Kind::Network => $($world)+.networks.$($call)+,
            Kind::Ip => $($world)+.ips.$($call)+,
            Kind::Configuration => $($world)+.configurations.$($call)+,
            Kind::GatewayServer => $($world)+.servers.$($call)+,
            Kind::GatewayClient => $($world)+.clients.$($call)+,
            Kind::PublicKey => $($world)+.public_keys.$($call)+,
            Kind::Connection => $($world)+.connections.$($call)+,
            Kind::ForeignCluster => $($world)+.foreign_clusters.$($call)+,
            Kind::Node => $($world)+.nodes.$($call)+,
            Kind::Pod => $($world)+.pods.$($call)+,
            Kind::Namespace => $($world)+.namespaces.$($call)+,
            Kind::ConfigMap => $($world)+.config_maps.$($call)+,
            Kind::Secret => $($world)+.secrets.$($call)+,
            Kind::RoleBinding => $($world)+.role_bindings.$($call)+,
            Kind::GatewayKeys => $($world)+.gateway_keys.$($call)+,
            Kind::Service => $($world)+.services.$($call)+,
            Kind::EndpointSlice => $($world)+.slices.$($call)+,
            Kind::Deployment => $($world)+.deployments.$($call)+,
        }
    };
}

impl World {
    /// Creates a world without objects.
    pub(crate) fn new(namespace: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            named_tenants: Vec::new(),
            networks: Store::default(),
            ips: Store::default(),
            configurations: Store::default(),
            servers: Store::default(),
            clients: Store::default(),
            public_keys: Store::default(),
            connections: Store::default(),
            foreign_clusters: Store::default(),
            nodes: Store::default(),
            pods: Store::default(),
            namespaces: Store::default(),
            config_maps: Store::default(),
            secrets: Store::default(),
            role_bindings: Store::default(),
            gateway_keys: Store::default(),
            services: Store::default(),
            slices: Store::default(),
            deployments: Store::default(),
            cluster: Cluster::default(),
            readable: BTreeSet::new(),
            looked_up: BTreeMap::new(),
            refused_services: BTreeMap::new(),
            links: BTreeSet::new(),
        }
    }

    /// Puts an object into the store of its kind.
    pub(super) fn put_into_store(
        &mut self,
        kind: Kind,
        key: &Key,
        object: Arc<dyn Any + Send + Sync>,
    ) -> bool {
        store!([self] kind, put(key, object))
    }

    /// Removes an object from the store of its kind.
    pub(super) fn remove_from_store(&mut self, kind: Kind, key: &Key) {
        store!([self] kind, remove(key));
    }

    /// Returns the metadata of an object.
    pub(super) fn meta(&self, kind: Kind, key: &Key) -> Option<&ObjectMeta> {
        store!([self] kind, meta(key))
    }
}
