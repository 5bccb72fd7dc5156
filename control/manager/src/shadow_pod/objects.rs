//! The objects of ShadowPods in the cache.

use crate::authentication::{label, policy};
use crate::webhook::creator_label;
use control_api::{Quota, ShadowPod, TenantPolicy, annotations, labels};
use control_runtime::{Cache, Cluster, Key, Objects};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Index of ShadowPods by the user that has created them, as in the label.
pub(super) const BY_CREATOR: &str = "shadow_pod/creator";

/// A user of a consumer, whose Quota limits its ShadowPods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct User<'a> {
    /// Tenant namespace of the consumer.
    pub(super) tenant: &'a str,
    /// Name of the user, as in the label.
    pub(super) creator: &'a str,
}

/// The objects of the local cluster.
pub(super) struct Local<'a> {
    /// Namespace of Liqo itself.
    pub(super) liqo: &'a str,
    pub(super) shadow_pods: Objects<'a, ShadowPod>,
    pub(super) pods: Objects<'a, Pod>,
    pub(super) quotas: Objects<'a, Quota>,
    pub(super) namespaces: Objects<'a, Namespace>,
    cache: &'a Cache,
}

impl<'a> Local<'a> {
    /// Creates the view of a cache, with Liqo in namespace `liqo`.
    pub(super) fn new(cache: &'a Cache, liqo: &'a str) -> Self {
        let local = &Cluster::Local;
        Self {
            liqo,
            shadow_pods: cache.objects(local),
            pods: cache.objects(local),
            quotas: cache.objects(local),
            namespaces: cache.objects(local),
            cache,
        }
    }

    /// Returns the consumer and its tenant namespace, if the manager has created a namespace for a consumer and it is not
    /// being deleted.
    pub(super) fn consumer(&self, namespace: &str) -> Option<(&'a str, &'a str)> {
        let metadata = &self.namespaces.get(&Key::cluster(namespace))?.metadata;
        let map = metadata
            .annotations
            .as_ref()?
            .get(annotations::NAMESPACE_MAP)?;
        let (tenant, _) = map.split_once('/')?;
        let peer = label(metadata, labels::REMOTE_CLUSTER_ID)?;

        metadata
            .deletion_timestamp
            .is_none()
            .then_some((peer, tenant))
    }

    /// Returns the user that has created a ShadowPod.
    pub(super) fn user(&self, shadow: &'a ShadowPod) -> Option<User<'a>> {
        let namespace = shadow.metadata.namespace.as_deref()?;
        let (_, tenant) = self.consumer(namespace)?;
        let creator = creator(&shadow.metadata)?;

        Some(User { tenant, creator })
    }

    /// Returns the ShadowPods of a user in all its namespaces.
    pub(super) fn shadow_pods_of(&self, user: &User<'_>) -> Vec<(&'a Key, &'a ShadowPod)> {
        let all = self.shadow_pods.indexed(BY_CREATOR, user.creator);
        let is_of_tenant = |key: &Key| {
            let consumer = self.consumer(&key.namespace);
            consumer.is_some_and(|(_, tenant)| tenant == user.tenant)
        };

        all.filter(|(key, _)| is_of_tenant(key)).collect()
    }

    /// Returns the Quota of a user.
    pub(super) fn quota(&self, user: &User<'_>) -> Option<&'a Quota> {
        let mut quotas = self.quotas.within(user.tenant);
        let found = quotas.find(|(_, quota)| creator_label(&quota.spec.user) == user.creator);

        found.map(|(_, quota)| quota)
    }

    /// Returns the TenantPolicy of a consumer.
    pub(super) fn policy(&self, peer: &str) -> Option<&'a TenantPolicy> {
        policy(self.cache, self.liqo, peer).map(|(_, policy)| policy)
    }
}

/// Returns the user that has created a ShadowPod, which the webhook writes.
pub(super) fn creator(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, labels::CREATOR_USER).filter(|it| !it.is_empty())
}

/// Returns whether a Pod was created for a ShadowPod.
pub(super) fn is_own(pod: &Pod, shadow: &ShadowPod) -> bool {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let is_owner = owners
        .any(|it| it.controller == Some(true) && Some(&it.uid) == shadow.metadata.uid.as_ref());

    is_owner && shadow.metadata.uid.is_some()
}

/// Returns whether the containers of a pod have ended.
pub(super) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
