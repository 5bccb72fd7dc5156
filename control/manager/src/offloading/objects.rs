//! The objects of offloading in the cache.

use super::write::owner;
use crate::authentication::{is_replica, label};
use control_api::authentication::resource_slice::ResourceSliceConditionStatus as Status;
use control_api::authentication::resource_slice::ResourceSliceConditionType as Type;
use control_api::tenant_namespace::peer_of;
use control_api::{
    Configuration, ForeignCluster, IP, Identity, Network, Quota, ResourceSlice, VirtualNode,
    VkOptionsTemplate, labels,
};
use control_runtime::{Cache, Cluster, Key, Objects};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Index of ResourceSlices and VirtualNodes by their names, which are unique in the cluster like those of Nodes.
pub(super) const BY_NAME: &str = "offloading/name";

/// Index of Quotas and VirtualNodes by the ResourceSlice that controls them, as `namespace/name`.
pub(super) const BY_SLICE: &str = "offloading/slice";

/// Index of pods by the Node that they are bound to.
pub(super) const BY_NODE: &str = "offloading/node";

/// Index of CertificateSigningRequests that wait for a decision, by the VirtualNode whose ServiceAccount has sent them, as
/// `namespace/name`.
pub(super) const BY_REQUESTER: &str = "offloading/requester";

/// Reason of an Event, and its message.
pub(super) type Refusal = (&'static str, String);

/// The objects of the local cluster.
pub(super) struct Local<'a> {
    pub(super) slices: Objects<'a, ResourceSlice>,
    pub(super) identities: Objects<'a, Identity>,
    pub(super) quotas: Objects<'a, Quota>,
    pub(super) virtual_nodes: Objects<'a, VirtualNode>,
    pub(super) namespaces: Objects<'a, Namespace>,
    pub(super) nodes: Objects<'a, Node>,
    /// Deployments of virtual kubelets in tenant namespaces.
    pub(super) deployments: Objects<'a, Deployment>,
    /// Pods of virtual kubelets, and offloaded pods while a Node is drained.
    pub(super) pods: Objects<'a, Pod>,
    /// ServiceAccounts in tenant namespaces.
    pub(super) accounts: Objects<'a, ServiceAccount>,
    /// Secrets in tenant namespaces that are about the peer, such as kubeconfigs.
    pub(super) secrets: Objects<'a, Secret>,
    pub(super) role_bindings: Objects<'a, RoleBinding>,
    pub(super) cluster_role_bindings: Objects<'a, ClusterRoleBinding>,
    pub(super) requests: Objects<'a, CertificateSigningRequest>,
    pub(super) options: Objects<'a, VkOptionsTemplate>,
    pub(super) networks: Objects<'a, Network>,
    pub(super) configurations: Objects<'a, Configuration>,
    pub(super) ips: Objects<'a, IP>,
    pub(super) foreign_clusters: Objects<'a, ForeignCluster>,
    pub(super) cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(super) fn new(cache: &'a Cache) -> Self {
        let local = &Cluster::Local;
        Self {
            slices: cache.objects(local),
            identities: cache.objects(local),
            quotas: cache.objects(local),
            virtual_nodes: cache.objects(local),
            namespaces: cache.objects(local),
            nodes: cache.objects(local),
            deployments: cache.objects(local),
            pods: cache.objects(local),
            accounts: cache.objects(local),
            secrets: cache.objects(local),
            role_bindings: cache.objects(local),
            cluster_role_bindings: cache.objects(local),
            requests: cache.objects(local),
            options: cache.objects(local),
            networks: cache.objects(local),
            configurations: cache.objects(local),
            ips: cache.objects(local),
            foreign_clusters: cache.objects(local),
            cache,
        }
    }

    /// Returns whether a namespace is being deleted, so that nothing can be created in it.
    pub(super) fn is_terminating(&self, namespace: &str) -> bool {
        let namespace = self.namespaces.get(&Key::cluster(namespace));
        namespace.is_some_and(|it| it.metadata.deletion_timestamp.is_some())
    }

    /// Returns the cluster ID of the peer whose tenant namespace this is.
    pub(super) fn peer_of(&self, namespace: &str) -> Option<&'a str> {
        peer_of(&self.namespaces.get(&Key::cluster(namespace))?.metadata)
    }

    /// Returns the cluster ID of the peer of a slice.
    ///
    /// # Errors
    ///
    /// Returns a refusal if one of the `named` cluster IDs in the slice is another one.
    pub(super) fn peer(
        &self,
        key: &Key,
        named: &[(&'static str, Option<&str>)],
    ) -> Result<&'a str, Refusal> {
        let Some(peer) = self.peer_of(&key.namespace) else {
            let message = format!(
                "namespace {} is not the tenant namespace of a peer: label it {}=CLUSTER and {}=true",
                key.namespace,
                labels::REMOTE_CLUSTER_ID,
                labels::TENANT_NAMESPACE
            );
            return Err(("NotTenantNamespace", message));
        };
        let other = named.iter().find_map(|(field, id)| {
            let id = id.filter(|id| *id != peer)?;
            Some((field, id))
        });
        match other {
            None => Ok(peer),
            Some((field, id)) => {
                let message = format!(
                    "{field} is `{id}`, but namespace {} is the tenant namespace of `{peer}`: move the slice",
                    key.namespace
                );
                Err(("NotTenantNamespace", message))
            }
        }
    }
}

/// Returns the refusal of a name that a Node has which does not represent resources of `peer`.
pub(super) fn foreign_node(local: &Local<'_>, name: &str, peer: &str) -> Option<Refusal> {
    let metadata = &local.nodes.get(&Key::cluster(name))?.metadata;
    let is_virtual = label(metadata, labels::NODE_TYPE) == Some(labels::NODE_TYPE_VIRTUAL);
    if is_virtual && label(metadata, labels::REMOTE_CLUSTER_ID) == Some(peer) {
        return None;
    }
    let message = format!(
        "Node {name} exists and does not represent resources of `{peer}`: use another name"
    );

    Some(("NodeExists", message))
}

/// Returns whether a slice is a request of this cluster to a provider.
pub(super) fn is_local(slice: &ResourceSlice) -> bool {
    label(&slice.metadata, labels::REPLICATION) == Some("true") && !is_replica(&slice.metadata)
}

/// Returns whether the provider has accepted identity and resources of a slice.
pub(super) fn is_accepted(slice: &ResourceSlice) -> bool {
    let conditions = slice.status.iter().flat_map(|it| &it.conditions);
    let is_accepted = |type_: Type| {
        // Another entry of the type would be ambiguous. Readers take the first.
        let mut of_type = conditions.clone().filter(|it| it.type_ == type_);
        of_type
            .next()
            .is_some_and(|it| it.status == Status::Accepted)
    };

    is_accepted(Type::Authentication) && is_accepted(Type::Resources)
}

/// Returns the key of an object's controlling slice.
pub(super) fn owner_key(metadata: &ObjectMeta) -> Option<Key> {
    let namespace = metadata.namespace.as_deref()?;
    owner(metadata).map(|name| Key::new(namespace, name))
}

/// Returns an annotation of an object.
pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
