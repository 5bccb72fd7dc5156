//! The objects of authentication in the cache.

use super::item::WorkItem;
use crate::network::id_of;
use control_api::authentication::tenant_policy;
use control_api::tenant_namespace::peer_of;
use control_api::{Identity, NamespaceMap, Renew, ResourceSlice, Tenant, TenantPolicy, labels};
use control_credentials::{ClusterKey, Subject};
use control_runtime::{Action, Cache, Cluster, Env, Event, Key, Objects, Plan, Ref, Write};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::api::rbac::v1::{self as rbac, ClusterRoleBinding, RoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

/// Index of Tenants by the cluster ID of the consumer.
pub(super) const BY_PEER: &str = "authentication/peer";

/// Index of Tenants by name.
pub(super) const BY_NAME: &str = "authentication/name";

/// Index of bindings by the users and groups that they give rights to.
pub(super) const BY_SUBJECT: &str = "authentication/subject";

/// Index of the ResourceSlices of consumers by the user that their certificates name.
pub(super) const BY_USER: &str = "authentication/user";

/// Index of CertificateSigningRequests by the Secret that they are for, as `namespace/name`.
pub(super) const BY_SECRET: &str = "authentication/secret";

/// Name of the Secret with the key of this cluster, in Liqo's namespace.
pub(super) const AUTHENTICATION_KEYS: &str = "authentication-keys";

/// Key of the private key in that Secret.
pub(super) const PRIVATE_KEY: &str = "privateKey";

/// The objects of the local cluster.
pub(super) struct Local<'a> {
    /// Namespace of Liqo itself.
    pub(super) namespace: &'a str,
    pub(super) tenants: Objects<'a, Tenant>,
    pub(super) identities: Objects<'a, Identity>,
    pub(super) slices: Objects<'a, ResourceSlice>,
    pub(super) renews: Objects<'a, Renew>,
    pub(super) namespace_maps: Objects<'a, NamespaceMap>,
    pub(super) storage_classes: Objects<'a, StorageClass>,
    pub(super) secrets: Objects<'a, Secret>,
    pub(super) requests: Objects<'a, CertificateSigningRequest>,
    pub(super) namespaces: Objects<'a, Namespace>,
    pub(super) role_bindings: Objects<'a, RoleBinding>,
    pub(super) cluster_role_bindings: Objects<'a, ClusterRoleBinding>,
    pub(super) config_maps: Objects<'a, ConfigMap>,
    pub(super) nodes: Objects<'a, Node>,
    pub(super) cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(super) fn new(cache: &'a Cache, namespace: &'a str) -> Self {
        let local = &Cluster::Local;
        Self {
            namespace,
            tenants: cache.objects(local),
            identities: cache.objects(local),
            slices: cache.objects(local),
            renews: cache.objects(local),
            namespace_maps: cache.objects(local),
            storage_classes: cache.objects(local),
            secrets: cache.objects(local),
            requests: cache.objects(local),
            namespaces: cache.objects(local),
            role_bindings: cache.objects(local),
            cluster_role_bindings: cache.objects(local),
            config_maps: cache.objects(local),
            nodes: cache.objects(local),
            cache,
        }
    }

    /// Returns the cluster ID of the peer whose tenant namespace this is.
    pub(super) fn peer_of(&self, namespace: &str) -> Option<&'a str> {
        peer_of(&self.namespaces.get(&Key::cluster(namespace))?.metadata)
    }

    /// Returns the TenantPolicy of a consumer, with its name. One object applies as a whole.
    pub(super) fn policy(&self, peer: &str) -> Option<(&'a str, &'a TenantPolicy)> {
        policy(self.cache, self.namespace, peer)
    }

    /// Returns the ID of this cluster.
    pub(super) fn cluster_id(&self) -> Option<&'a str> {
        cluster_id(self.cache, self.namespace)
    }

    /// Returns the key of this cluster; `None` if it is missing or invalid.
    pub(super) fn cluster_key(&self) -> Option<ClusterKey> {
        let key = Key::new(self.namespace, AUTHENTICATION_KEYS);
        let private = self.secrets.get(&key)?.data.as_ref()?.get(PRIVATE_KEY)?;
        ClusterKey::from_pem(&private.0).ok()
    }
}

/// Returns the ID of this cluster, with Liqo in `namespace`.
pub(crate) fn cluster_id<'a>(cache: &'a Cache, namespace: &str) -> Option<&'a str> {
    let maps = cache.objects::<ConfigMap>(&Cluster::Local);
    maps.within(namespace).find_map(|(_, map)| id_of(map))
}

/// Returns the TenantPolicy of a consumer, with its name, where Liqo is in `namespace`. One object applies as a whole.
pub(crate) fn policy<'a>(
    cache: &'a Cache,
    namespace: &str,
    peer: &str,
) -> Option<(&'a str, &'a TenantPolicy)> {
    let policy = |name: &str| cache.local::<TenantPolicy>(&Key::new(namespace, name));
    let policy = policy(peer).or_else(|| policy(tenant_policy::DEFAULT))?;

    Some((policy.metadata.name.as_deref()?, policy))
}

/// Returns the consumer from whose cluster an object was replicated to this one, by its cluster ID.
pub(super) fn origin(metadata: &ObjectMeta) -> Option<&str> {
    let is_replica = label(metadata, labels::REPLICATED) == Some("true");
    label(metadata, labels::ORIGIN_ID).filter(|_| is_replica)
}

/// Returns the user of a consumer's ResourceSlice.
pub(super) fn user_of_slice(slice: &ResourceSlice) -> Vec<String> {
    let name = slice.metadata.name.as_deref().unwrap_or_default();
    let subject = origin(&slice.metadata).map(|origin| Subject::resource_slice(origin, name));
    subject.into_iter().map(|it| it.common_name).collect()
}

/// Returns the users and groups that a binding gives rights to.
pub(super) fn users(subjects: Option<&[rbac::Subject]>) -> Vec<String> {
    let subjects = subjects.unwrap_or_default().iter();
    let users = subjects.filter(|it| it.kind == "User" || it.kind == "Group");
    users.map(|it| it.name.clone()).collect()
}

/// Returns a label of an object.
pub(crate) fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Adds the cluster ID of the peer to the labels of an object that lacks it, for readers who select objects by it.
pub(super) fn label_peer(
    plan: &mut Plan<WorkItem>,
    object: &Ref,
    metadata: &ObjectMeta,
    peer: &str,
) {
    if label(metadata, labels::REMOTE_CLUSTER_ID).is_some() {
        return;
    }
    let merge = json!({"metadata": {"labels": {labels::REMOTE_CLUSTER_ID: peer}}});
    plan.writes
        .push(Write::new(object.clone(), Action::Merge(merge)));
}

/// Returns the time as the API server keeps it in conditions.
pub(super) fn whole_seconds(env: &Env<'_>) -> Timestamp {
    Timestamp::from_second(env.now.as_second()).unwrap_or(env.now)
}

/// Reason of an Event or a condition, and its message.
pub(crate) type Refusal = (&'static str, String);

/// Adds a warning about an object to a plan.
pub(crate) fn warn<I>(plan: &mut Plan<I>, object: Ref, (reason, note): Refusal) {
    plan.events.push(Event {
        object,
        is_warning: true,
        reason,
        note,
        is_repeated: false,
    });
}
