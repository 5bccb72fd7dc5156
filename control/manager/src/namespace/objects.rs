//! The objects of namespaces in the cache.

use crate::authentication::{cluster_id, is_replica, label, policy};
use control_api::offloading::namespace_map::NamespaceMapping;
use control_api::tenant_namespace::peer_of;
use control_api::{
    NamespaceMap, NamespaceOffloading, TenantPolicy, VirtualNode, annotations, labels,
};
use control_runtime::{Cache, Cluster, Finalizer, Key, Objects};
use k8s_openapi::api::core::v1::{Namespace, Node, ResourceQuota};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use std::time::Duration;

/// Name of a NamespaceOffloading. Others have no effect.
pub(super) const NAME: &str = "offloading";

/// Index of namespaces by the NamespaceMap of a consumer that they were created for, as `namespace/name`.
pub(super) const BY_MAP: &str = "namespace/map";

/// Index of NamespaceMaps by the namespaces of this cluster in their specification or status.
pub(super) const BY_ENTRY: &str = "namespace/entry";

/// Index of NamespaceMaps of consumers by the names of namespaces that they request in this cluster.
pub(super) const BY_REMOTE: &str = "namespace/remote";

/// Index of VirtualNodes by name, which is that of their Node.
pub(super) const BY_NAME: &str = "namespace/name";

/// Delays the deletion of a NamespaceOffloading until the remote namespaces are gone, as upstream's.
pub(super) const FINALIZER: Finalizer = Finalizer {
    name: "namespaceoffloading-controller.liqo.io/finalizer",
    wait_max: Duration::from_secs(600),
};

/// The objects of the local cluster.
pub(super) struct Local<'a> {
    /// Namespace of Liqo itself.
    pub(super) liqo: &'a str,
    pub(super) offloadings: Objects<'a, NamespaceOffloading>,
    pub(super) maps: Objects<'a, NamespaceMap>,
    pub(super) virtual_nodes: Objects<'a, VirtualNode>,
    pub(super) nodes: Objects<'a, Node>,
    pub(super) namespaces: Objects<'a, Namespace>,
    pub(super) role_bindings: Objects<'a, RoleBinding>,
    pub(super) quotas: Objects<'a, ResourceQuota>,
    pub(super) cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache, with Liqo in namespace `liqo`.
    pub(super) fn new(cache: &'a Cache, liqo: &'a str) -> Self {
        let local = &Cluster::Local;
        Self {
            liqo,
            offloadings: cache.objects(local),
            maps: cache.objects(local),
            virtual_nodes: cache.objects(local),
            nodes: cache.objects(local),
            namespaces: cache.objects(local),
            role_bindings: cache.objects(local),
            quotas: cache.objects(local),
            cache,
        }
    }

    /// Returns the ID of this cluster.
    pub(super) fn cluster_id(&self) -> Option<&'a str> {
        cluster_id(self.cache, self.liqo)
    }

    /// Returns the cluster ID of the peer whose tenant namespace this is.
    pub(super) fn peer_of(&self, namespace: &str) -> Option<&'a str> {
        peer_of(&self.namespaces.get(&Key::cluster(namespace))?.metadata)
    }

    /// Returns whether a namespace is absent or being deleted, so that nothing can be created in it.
    pub(super) fn is_terminating(&self, namespace: &str) -> bool {
        let namespace = self.namespaces.get(&Key::cluster(namespace));
        namespace.is_none_or(|it| it.metadata.deletion_timestamp.is_some())
    }

    /// Returns the NamespaceOffloading of a namespace.
    pub(super) fn offloading(&self, namespace: &str) -> Option<&'a NamespaceOffloading> {
        self.offloadings.get(&Key::new(namespace, NAME))
    }

    /// Returns the NamespaceMap of this cluster in a tenant namespace: it has the name of the provider.
    pub(super) fn map(&self, tenant: &str) -> Option<&'a NamespaceMap> {
        let key = Key::new(tenant, self.peer_of(tenant)?);
        self.maps.get(&key).filter(|map| !is_replica(&map.metadata))
    }

    /// Returns the VirtualNodes in a tenant namespace that represent resources of its peer.
    pub(super) fn virtual_nodes_of(
        &self,
        tenant: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a VirtualNode)> + use<'a> {
        let peer = self.peer_of(tenant);
        let all = self.virtual_nodes.within(tenant);
        all.filter(move |(_, it)| peer.is_some() && it.spec.cluster_id.as_deref() == peer)
    }

    /// Returns the labels of the Node of a VirtualNode, or those that it will have.
    pub(super) fn node_labels(&self, key: &Key, node: &VirtualNode) -> BTreeMap<String, String> {
        let peer = node.spec.cluster_id.as_deref().unwrap_or_default();
        let present = self.nodes.get(&Key::cluster(&*key.name)).filter(|node| {
            label(&node.metadata, labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL)
                && label(&node.metadata, labels::REMOTE_CLUSTER_ID) == Some(peer)
        });
        if let Some(present) = present {
            return present.metadata.labels.clone().unwrap_or_default();
        }
        let mut all = node.spec.labels.clone();
        let has_storage = !node.spec.storage_classes.is_empty();
        all.insert(labels::REMOTE_CLUSTER_ID.to_owned(), peer.to_owned());
        all.insert(
            labels::STORAGE_AVAILABLE.to_owned(),
            has_storage.to_string(),
        );

        all
    }

    /// Returns the TenantPolicy of a consumer.
    pub(super) fn policy(&self, peer: &str) -> Option<&'a TenantPolicy> {
        policy(self.cache, self.liqo, peer).map(|(_, policy)| policy)
    }
}

/// Returns the entry of a namespace in the status of a NamespaceMap.
pub(super) fn mapping<'a>(
    map: Option<&'a NamespaceMap>,
    namespace: &str,
) -> Option<&'a NamespaceMapping> {
    map?.status.as_ref()?.current_mapping.get(namespace)
}

/// Returns the namespaces of the consumer in the specification or status of a NamespaceMap.
pub(super) fn entries(map: &NamespaceMap) -> impl Iterator<Item = &String> {
    let current = map.status.iter().flat_map(|it| it.current_mapping.keys());
    map.spec.desired_mapping.keys().chain(current)
}

/// Returns the NamespaceMap of a consumer that a namespace was created for, as `namespace/name`.
pub(super) fn map_of(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations
        .get(annotations::NAMESPACE_MAP)
        .map(String::as_str)
}
