//! The objects of ShadowPods in the cache, and what they mean for a pod.

use super::demand::Demand;
use super::kept::{KeptShadowPod, is_terminal};
use super::ledger::{Group, Rank};
use super::pod::phase;
use super::settings::Settings;
use super::terms::{Terms, overhead};
use super::text::shown;
use crate::authentication::{cluster_id, label, policy};
use crate::shadow_endpoint_slice::{Mapping, Peers};
use crate::webhook::creator_label;
use control_api::tenant_namespace::peer_of;
use control_api::{Quota, TenantPolicySpec, annotations, labels};
use control_runtime::{Cache, Cluster, Key, Objects};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Index of Quotas by tenant namespace and creator.
pub(super) const BY_CREATOR: &str = "shadow_pod/creator";

/// The objects of the local cluster.
pub(super) struct Local<'a> {
    settings: &'a Settings,
    pub(super) shadow_pods: Objects<'a, KeptShadowPod>,
    pub(super) pods: Objects<'a, Pod>,
    pub(super) peers: Peers<'a>,
    namespaces: Objects<'a, Namespace>,
    quotas: Objects<'a, Quota>,
    runtime_classes: Objects<'a, RuntimeClass>,
    cache: &'a Cache,
}

/// The meaning of the objects of one name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Standing {
    /// Nothing is to be created, and no existing pod counts.
    Ended,
    /// A pod exists and counts.
    Exists(Group, Arc<Demand>),
    /// A pod may be created as soon as it fits.
    Waits(Group, Rank, Arc<Demand>),
    /// A pod may be created, whatever it requests.
    Free,
    /// No pod may be created, with the reason.
    Refused(String),
}

impl<'a> Local<'a> {
    /// Creates the view of a cache.
    pub(super) fn new(cache: &'a Cache, settings: &'a Settings) -> Self {
        let local = &Cluster::Local;
        Self {
            settings,
            shadow_pods: cache.objects(local),
            pods: cache.objects(local),
            // The tenant namespace of a consumer has labels, so none is named by a setting.
            peers: Peers::new(cache, &[]),
            namespaces: cache.objects(local),
            quotas: cache.objects(local),
            runtime_classes: cache.objects(local),
            cache,
        }
    }

    /// Returns what the objects of a name mean.
    pub(super) fn standing(&self, key: &Key) -> Standing {
        if let Some(pod) = self.pods.get(key) {
            let charged =
                (!phase(pod).is_some_and(is_terminal)).then(|| self.group_of_pod(key, pod));
            return match charged.flatten() {
                Some(group) => Standing::Exists(group, Arc::new(demand_of_pod(pod))),
                None => Standing::Ended,
            };
        }
        let is_pending = self.is_pending(key) && !self.is_terminating(&key.namespace);
        let Some(shadow_pod) = self.shadow_pods.get(key).filter(|_| is_pending) else {
            return Standing::Ended;
        };
        match self.judge(key, shadow_pod) {
            Ok(standing) => standing,
            Err(reason) => Standing::Refused(reason),
        }
    }

    /// Checks origin, destination, content and creator of a ShadowPod.
    ///
    /// # Errors
    ///
    /// Returns why no pod may be created, and the remedy.
    fn judge(&self, key: &Key, shadow_pod: &KeptShadowPod) -> Result<Standing, String> {
        let (consumer, tenant) = self.consumer(&key.namespace)?;
        let origin = shadow_pod.labels.get(labels::ORIGIN);
        if origin.map(String::as_str) != Some(consumer) {
            return Err(format!(
                "label {} is `{}`, but namespace {} is of consumer `{consumer}`: set it to this cluster ID",
                labels::ORIGIN,
                shown(origin.map_or("", String::as_str)),
                key.namespace
            ));
        }
        if !self.check_destination(shadow_pod)? {
            // It waits until the ID of this cluster is known.
            return Ok(Standing::Ended);
        }
        let demand = shadow_pod.demand.clone()?;
        self.check_policy(consumer, shadow_pod)?;
        self.mapping(key, shadow_pod)?;
        if !self.settings.enforces_resources {
            return Ok(Standing::Free);
        }
        let creator = shadow_pod.labels.get(labels::CREATOR_USER);
        let Some(creator) = creator.filter(|creator| !creator.is_empty()) else {
            return Err(format!(
                "label {} is missing, so the pod counts against no Quota: delete the ShadowPod, so that it is created again",
                labels::CREATOR_USER
            ));
        };
        let class = shadow_pod.profile.runtime_class();
        let class = class.and_then(|class| self.runtime_classes.get(&Key::cluster(class)));
        let demand = match class.and_then(|class| class.overhead.as_ref()) {
            Some(it) => {
                let overhead = overhead(it.pod_fixed.as_ref());
                Arc::new(Demand::clone(&demand).with_overhead(&overhead))
            }
            None => demand,
        };
        let group = Group {
            tenant: tenant.to_owned(),
            creator: creator.clone(),
        };
        let rank = Rank {
            is_new: shadow_pod.phase.is_none(),
            created: shadow_pod.created,
            uid: shadow_pod.uid.clone(),
        };

        Ok(Standing::Waits(group, rank, demand))
    }

    /// Checks that this cluster is the destination of a ShadowPod: a virtual kubelet with the kubeconfig for another provider
    /// sends its ShadowPods to the wrong cluster. A ShadowPod without the label is accepted. Returns `false` while the check
    /// needs the ID of this cluster and it is unknown.
    ///
    /// # Errors
    ///
    /// Returns the destination, the ID of this cluster, and the remedy.
    fn check_destination(&self, shadow_pod: &KeptShadowPod) -> Result<bool, String> {
        let Some(destination) = shadow_pod.labels.get(labels::DESTINATION) else {
            return Ok(true);
        };
        let Some(own) = cluster_id(self.cache, &self.settings.namespace) else {
            return Ok(false);
        };
        if destination == own {
            return Ok(true);
        }
        let destination = shown(destination);

        Err(format!(
            "label {} is `{destination}`, but the ID of this cluster is `{own}`: give the VirtualNode the kubeconfig for \
             `{destination}`",
            labels::DESTINATION
        ))
    }

    /// Returns the translation of addresses in the spec of a ShadowPod, if it has any.
    ///
    /// # Errors
    ///
    /// Returns why there is none yet. The addresses of a pod cannot be changed later.
    pub(super) fn mapping(
        &self,
        key: &Key,
        shadow_pod: &KeptShadowPod,
    ) -> Result<Option<Mapping>, String> {
        if !shadow_pod.needs_mapping {
            return Ok(None);
        }
        let (consumer, _) = self.consumer(&key.namespace)?;
        let mapping = self.peers.mapping(consumer).map_err(|cause| {
            format!(
                "spec.pod.hostAliases has the address of the API server of consumer `{}`, and {cause}: connect the networks of \
                 both clusters, or remove the alias",
                shown(consumer)
            )
        })?;

        Ok(Some(mapping))
    }

    /// Returns the consumer that a namespace was created for: its cluster ID and its tenant namespace.
    ///
    /// # Errors
    ///
    /// Returns why the namespace is of no consumer.
    pub(super) fn consumer(&self, namespace: &str) -> Result<(&'a str, &'a str), String> {
        let metadata = self.namespaces.get(&Key::cluster(namespace));
        let metadata = metadata.map(|it| &it.metadata);
        let is_reserved = namespace == self.settings.namespace
            || metadata.is_none_or(|it| label(it, labels::TENANT_NAMESPACE).is_some());
        let consumer = metadata.and_then(|it| label(it, labels::REMOTE_CLUSTER_ID));
        let tenant = metadata.and_then(tenant_of);
        let (Some(consumer), Some(tenant), false) = (consumer, tenant, is_reserved) else {
            return Err(format!(
                "namespace {namespace} was not created for a NamespaceMap: a consumer offloads one of its namespaces, and uses \
                 the namespace that it gets"
            ));
        };
        let owner = self.namespaces.get(&Key::cluster(tenant));
        if owner.and_then(|it| peer_of(&it.metadata)) != Some(consumer) {
            return Err(format!(
                "annotation {} of namespace {namespace} does not name the tenant namespace of consumer `{}`: delete the \
                 namespace, so that it is created again",
                annotations::NAMESPACE_MAP,
                shown(consumer)
            ));
        }

        Ok((consumer, tenant))
    }

    /// Returns the terms of the Quota of a group.
    pub(super) fn terms(&self, group: &Group) -> Option<Terms> {
        let index = group_index(&group.tenant, &group.creator);
        let quotas = self.quotas.indexed(BY_CREATOR, &index);
        let live = quotas.filter(|(_, quota)| quota.metadata.deletion_timestamp.is_none());
        let (_, quota) = live.min_by_key(|(key, _)| *key)?;

        Some(Terms::of(&quota.spec))
    }

    /// Returns the ShadowPods and pods in a namespace.
    pub(super) fn within(&self, namespace: &str) -> BTreeSet<Key> {
        let shadow_pods = self.shadow_pods.within(namespace).map(|(key, _)| key);
        let pods = self.pods.within(namespace).map(|(key, _)| key);
        shadow_pods.chain(pods).cloned().collect()
    }

    /// Returns the ShadowPods and pods in the namespaces of a consumer.
    pub(super) fn of_consumer(&self, consumer: &str) -> BTreeSet<Key> {
        let namespaces = self.peers.namespaces_of(consumer);
        namespaces
            .flat_map(|namespace| self.within(namespace))
            .collect()
    }

    /// Returns whether a ShadowPod has no pod, and may get one.
    pub(super) fn is_pending(&self, key: &Key) -> bool {
        let shadow_pod = self.shadow_pods.get(key);
        self.pods.get(key).is_none()
            && shadow_pod.is_some_and(|it| !it.is_deleting && !it.has_ended())
    }

    fn is_terminating(&self, namespace: &str) -> bool {
        let namespace = self.namespaces.get(&Key::cluster(namespace));
        namespace.is_some_and(|it| it.metadata.deletion_timestamp.is_some())
    }

    /// Returns the group that an existing pod counts against. Only the manager writes the label of a pod, so that a consumer
    /// cannot move a pod to another Quota.
    fn group_of_pod(&self, key: &Key, pod: &Pod) -> Option<Group> {
        let (_, tenant) = self.consumer(&key.namespace).ok()?;
        let creator = label(&pod.metadata, labels::CREATOR_USER)?;
        Some(Group {
            tenant: tenant.to_owned(),
            creator: creator.to_owned(),
        })
    }

    /// Returns whether Quotas limit pods.
    pub(super) fn enforces_resources(&self) -> bool {
        self.settings.enforces_resources
    }

    /// Checks the containers of a ShadowPod, also ephemeral ones, by the TenantPolicy of its consumer.
    ///
    /// # Errors
    ///
    /// Returns what the policy does not permit, and the remedy.
    pub(super) fn check_change(&self, key: &Key, shadow_pod: &KeptShadowPod) -> Result<(), String> {
        let (consumer, _) = self.consumer(&key.namespace)?;

        self.check_policy(consumer, shadow_pod)
    }

    fn check_policy(&self, consumer: &str, shadow_pod: &KeptShadowPod) -> Result<(), String> {
        let checked = shadow_pod.profile.check(self.policy(consumer));

        checked.map_err(|refusal| refusal.to_string())
    }

    /// Returns the TenantPolicy of a consumer.
    fn policy(&self, consumer: &str) -> Option<&'a TenantPolicySpec> {
        policy(self.cache, &self.settings.namespace, consumer).map(|(_, policy)| &policy.spec)
    }
}

/// Returns what an existing pod requests. One that cannot be computed leaves nothing to others.
fn demand_of_pod(pod: &Pod) -> Demand {
    let spec = pod.spec.clone().unwrap_or_default();
    Demand::of(&spec).unwrap_or_else(|_| {
        let containers = spec.containers.iter();
        let containers = containers.chain(spec.init_containers.iter().flatten());
        let requests = containers.filter_map(|it| it.resources.as_ref()?.requests.as_ref());
        Demand::unlimited(requests.flat_map(|it| it.keys().map(String::as_str)))
    })
}

/// Returns the tenant namespace of the NamespaceMap that a namespace was created for.
fn tenant_of(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    let (tenant, _) = annotations
        .get(annotations::NAMESPACE_MAP)?
        .split_once('/')?;

    Some(tenant)
}

/// Returns the value of a group in indexes.
pub(super) fn group_index(tenant: &str, creator: &str) -> String {
    format!("{tenant}/{creator}")
}

/// Returns the group of a Quota.
pub(super) fn group_of_quota(key: &Key, quota: &Quota) -> Group {
    Group {
        tenant: key.namespace.clone(),
        creator: creator_label(&quota.spec.user),
    }
}
