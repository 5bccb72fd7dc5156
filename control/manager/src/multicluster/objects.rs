//! The objects of this cluster in the cache.

use super::OWNER;
use super::settings::Settings;
use super::watches::{all, within};
use crate::authentication::{cluster_id, label};
use crate::shadow_endpoint_slice;
use control_api::multicluster::LABEL_SERVICE_NAME;
use control_api::tenant_namespace::peer_of;
use control_api::{ExportedService, ForeignCluster, Network, ServiceExport, ServiceImport, labels};
use control_runtime::{Cache, Cluster, Key, Objects};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The objects of this cluster.
pub(super) struct Local<'a> {
    pub(super) cache: &'a Cache,
    pub(super) settings: &'a Settings,
    /// Addresses and states of peers.
    pub(super) addresses: shadow_endpoint_slice::Local<'a>,
    pub(super) exports: Objects<'a, ServiceExport>,
    pub(super) imports: Objects<'a, ServiceImport>,
    pub(super) exported: Objects<'a, ExportedService>,
    pub(super) services: Objects<'a, Service>,
    pub(super) slices: Objects<'a, EndpointSlice>,
    pub(super) foreign_clusters: Objects<'a, ForeignCluster>,
    namespaces: Objects<'a, Namespace>,
    networks: Objects<'a, Network>,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(super) fn new(cache: &'a Cache, settings: &'a Settings) -> Self {
        let local = &Cluster::Local;
        Self {
            cache,
            settings,
            addresses: shadow_endpoint_slice::Local::new(cache, &settings.endpoints),
            exports: cache.objects(local),
            imports: cache.objects(local),
            exported: cache.objects(local),
            services: cache.objects(local),
            slices: cache.objects(local),
            foreign_clusters: cache.objects(local),
            namespaces: cache.objects(local),
            networks: cache.objects(local),
        }
    }

    /// Returns the ID of this cluster.
    pub(super) fn cluster_id(&self) -> Option<&'a str> {
        cluster_id(self.cache, &self.settings.endpoints.namespace)
    }

    /// Returns the reference to the owner of all objects; `None` while the feature is being switched off.
    pub(super) fn owner(&self) -> Option<Value> {
        let role = self.cache.local::<ClusterRole>(&Key::cluster(OWNER))?;
        let metadata = &role.metadata;
        let uid = metadata.uid.as_ref();
        let uid = uid.filter(|_| metadata.deletion_timestamp.is_none())?;

        Some(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": OWNER,
            "uid": uid,
        }))
    }

    /// Returns whether all objects are known that a Service depends on in this cluster. Without them, its export would be withdrawn.
    pub(super) fn is_listed(&self, key: &Key) -> bool {
        let is_listed = self.cache.is_synced(&all::<ServiceExport>())
            && self.cache.is_synced(&all::<ServiceImport>());
        let has_endpoints = self.cache.is_synced(&within::<Service>(&key.namespace))
            && self
                .cache
                .is_synced(&within::<EndpointSlice>(&key.namespace));

        is_listed && (self.exports.get(key).is_none() || has_endpoints)
    }

    /// Returns whether objects can be created in a namespace.
    pub(super) fn has_namespace(&self, name: &str) -> bool {
        let namespace = self.namespaces.get(&Key::cluster(name));
        namespace.is_some_and(|it| it.metadata.deletion_timestamp.is_none())
    }

    /// Returns whether the administrator has chosen a namespace for the Services of peers.
    pub(super) fn admits(&self, name: &str) -> bool {
        let Some(namespace) = self.namespaces.get(&Key::cluster(name)) else {
            return false;
        };
        let metadata = &namespace.metadata;
        let mut wanted = self.settings.namespace_labels.iter();

        wanted.all(|(key, value)| label(metadata, key) == Some(value))
            && name != self.settings.endpoints.namespace
            && peer_of(metadata).is_none()
    }

    /// Returns the peer whose tenant namespace this is.
    pub(super) fn peer_of(&self, namespace: &str) -> Option<&'a str> {
        peer_of(&self.namespaces.get(&Key::cluster(namespace))?.metadata)
    }

    /// Returns the pod CIDRs of this cluster, whose addresses peers translate.
    pub(super) fn pod_cidrs(&self) -> Vec<Ipv4Net> {
        let networks = self.networks.within(&self.settings.endpoints.namespace);
        networks
            .filter_map(|(_, network)| pod_cidr(network))
            .collect()
    }

    /// Returns the Services that this cluster or a peer exports, and those that are imported.
    pub(super) fn keys(&self) -> BTreeSet<Key> {
        let exports = self.exports.iter().map(|(key, _)| key.clone());
        let imports = self.imports.iter().filter(|(_, it)| is_own(&it.metadata));
        let imports = imports.map(|(key, _)| key.clone());
        let exported = self.exported.iter().map(|(_, it)| it);
        let exported = exported.chain(self.of_providers());

        exports
            .chain(imports)
            .chain(exported.filter_map(service_of))
            .collect()
    }

    /// Returns all ExportedServices that are known of providers.
    fn of_providers(&self) -> impl Iterator<Item = &'a ExportedService> {
        let cache = self.cache;
        let clusters = self.foreign_clusters.iter();
        clusters.flat_map(|(key, _)| {
            let exported = cache.objects::<ExportedService>(&Cluster::remote(&key.name));
            exported.iter().map(|(_, it)| it)
        })
    }
}

/// Returns the Service that an ExportedService is about; `None` if its name contradicts its content.
pub(super) fn service_of(exported: &ExportedService) -> Option<Key> {
    let (namespace, name) = (&exported.spec.namespace, &exported.spec.name);
    let prefix = ExportedService::name_of(namespace, name, "");
    let is_named = exported.metadata.name.as_ref()?.starts_with(&prefix);

    is_named.then(|| Key::new(namespace.as_str(), name.as_str()))
}

/// Returns the Service to whose import a Service or an EndpointSlice belongs.
pub(super) fn import_of(metadata: &ObjectMeta) -> Option<Key> {
    let name = label(metadata, LABEL_SERVICE_NAME).filter(|_| is_own(metadata))?;
    let namespace = metadata.namespace.as_deref()?;

    Some(Key::new(namespace, name))
}

/// Returns whether an object was created for an imported Service.
pub(super) fn is_own(metadata: &ObjectMeta) -> bool {
    label(metadata, labels::MANAGED_BY) == Some(labels::MANAGED_BY_SERVICE_IMPORT)
}

/// Returns the CIDR of a Network of pods; `None` for other Networks.
pub(super) fn pod_cidr(network: &Network) -> Option<Ipv4Net> {
    let type_ = label(&network.metadata, labels::NETWORK_TYPE)?;
    let cidr = &network.spec.cidr;

    cidr.parse()
        .ok()
        .filter(|_| type_ == labels::NETWORK_TYPE_POD)
}
