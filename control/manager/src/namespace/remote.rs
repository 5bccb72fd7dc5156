//! The namespaces of a consumer: created for the entries of its NamespaceMap, with the rights of its virtual kubelets.
//!
//! A namespace belongs to the NamespaceMap that its annotation names, which only administrators and the manager can write.
//! So no finalizer is needed: namespaces whose NamespaceMap or entry is gone are deleted whenever they are observed, or after
//! their consumer has removed its objects (`withdrawal`).

use super::binding::Binding;
use super::item::WorkItem;
use super::objects::{BY_MAP, Local};
use super::policy::{Limits, pod_security};
use super::quota;
use super::withdrawal::{Withdrawals, is_withdrawn};
use crate::authentication::{is_replica, label, warn};
use control_api::offloading::namespace_map::{
    MappingPhase as Phase, NamespaceMapStatus, NamespaceMapping,
};
use control_api::{NamespaceMap, TenantPolicy, annotations, labels};
use control_runtime::{Action, Cluster, Env, Key, Plan, Ref, Write, merge_patch};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of entries of a NamespaceMap that are reported, so that its status stays small.
const ENTRIES_MAX: usize = 1000;

/// Plans the namespaces of a consumer's NamespaceMap.
pub(super) fn plan(
    local: &Local<'_>,
    withdrawals: &mut Withdrawals,
    key: &Key,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let map = local.maps.get(key).filter(|it| is_live(local, key, it));
    let peer = local.peer_of(&key.namespace).unwrap_or_default();
    let Some(map) = map else {
        for (name, namespace) in owned(local, key) {
            delete(&mut plan, name, namespace);
        }
        withdrawals.retain(key, |_| false);
        return plan;
    };
    let consumer = Consumer {
        local,
        key,
        map,
        peer,
    };
    let mut current = BTreeMap::new();
    let mut withdrawn = BTreeSet::new();
    let mut refusals = Vec::new();
    let accepted = consumer.accepted(&mut refusals);
    for (name, namespace) in owned(local, key) {
        let original = original_name(namespace).unwrap_or_default();
        if accepted.get(name.name.as_str()).copied() == Some(original) {
            continue;
        }
        let is_present = namespace.metadata.deletion_timestamp.is_none();
        if is_present && is_withdrawn(map, original) {
            withdrawn.insert(name.name.as_str());
            if !withdrawals.waits(local, (key, peer), &name.name, env, &mut plan) {
                delete(&mut plan, name, namespace);
            }
        } else {
            delete(&mut plan, name, namespace);
        }
        let mapping = entry(Phase::Terminating, &name.name);
        current.insert(original.to_owned(), mapping);
    }
    withdrawals.retain(key, |it| withdrawn.contains(it));
    for (remote, original) in &accepted {
        if let Some(phase) = consumer.plan_namespace(original, remote, &mut plan, &mut refusals) {
            current.insert((*original).to_owned(), entry(phase, remote));
        }
    }
    for (original, remote, _) in &refusals {
        let entry = entry(Phase::CreationLoopBackOff, remote);
        current.entry(original.clone()).or_insert(entry);
    }
    consumer.report(current, refusals, &mut plan);

    plan
}

/// A refused entry: the consumer's namespace, the name that it requests, and the reason.
type Refused = (String, String, String);

/// A NamespaceMap of a consumer.
struct Consumer<'a> {
    local: &'a Local<'a>,
    key: &'a Key,
    map: &'a NamespaceMap,
    /// Cluster ID.
    peer: &'a str,
}

impl<'a> Consumer<'a> {
    /// Returns the entries that the consumer may have: its namespaces by their names in this cluster.
    fn accepted(&self, refusals: &mut Vec<Refused>) -> BTreeMap<&'a str, &'a str> {
        let limits = Limits::new(self.local.policy(self.peer), self.local.liqo);
        let entries = &self.map.spec.desired_mapping;
        let mut entries: Vec<_> = entries.iter().take(ENTRIES_MAX).collect();
        // Entries that have a namespace precede others, so neither a limit nor another entry ends what runs.
        entries.sort_by_key(|(original, remote)| {
            let present = self.present(remote);
            let is_present = present
                .is_some_and(|it| self.owns(it) && original_name(it) == Some(original.as_str()));
            (!is_present && !self.had(original, remote), *original)
        });
        let mut accepted = BTreeMap::new();
        for (original, remote) in entries {
            let refusal = if let Err(reason) = limits.check(remote) {
                Some(reason)
            } else if accepted.contains_key(remote.as_str()) {
                Some(format!(
                    "`{remote}` is requested for another namespace, too: use another name"
                ))
            } else if accepted.len() >= limits.count_max() {
                Some(format!(
                    "the consumer has {} namespaces, as many as spec.namespaces.max of its TenantPolicy allows: raise it, \
                     or unoffload another namespace",
                    limits.count_max()
                ))
            } else {
                None
            };
            match refusal {
                Some(reason) => refusals.push((original.clone(), remote.clone(), reason)),
                None => {
                    accepted.insert(remote.as_str(), original.as_str());
                }
            }
        }

        accepted
    }

    /// Plans a namespace with its bindings, and returns its phase; `None` until it is complete.
    fn plan_namespace(
        &self,
        original: &str,
        remote: &str,
        plan: &mut Plan<WorkItem>,
        refusals: &mut Vec<Refused>,
    ) -> Option<Phase> {
        let key = Key::cluster(remote);
        let object = Ref::of::<Namespace>(&Cluster::Local, &key);
        let policy = self.local.policy(self.peer);
        let labels = labels_of(policy);
        let Some(present) = self.present(remote) else {
            let create = Action::Create(self.namespace(original, remote, &labels));
            plan.writes.push(Write::new(object, create));
            return None;
        };
        if !self.owns(present) {
            let reason = format!(
                "namespace `{remote}` exists and is not of this consumer: the consumer needs another name"
            );
            refusals.push((original.to_owned(), remote.to_owned(), reason));
            return Some(Phase::CreationLoopBackOff);
        }
        if present.metadata.deletion_timestamp.is_some() {
            return Some(Phase::Terminating);
        }
        let is_set = |(key, value)| label(&present.metadata, key) == value;
        if !labels.into_iter().all(is_set) {
            let labels = BTreeMap::from(labels);
            let merge = json!({"metadata": {"labels": labels}});
            let mut write = Write::new(object, Action::Merge(merge));
            write.uid.clone_from(&present.metadata.uid);
            plan.writes.push(write);
        }
        let of_manager = Binding::of_manager(remote, self.local.liqo).plan(self.local, plan);
        let of_consumer = Binding::of_consumer(remote, self.key, self.peer);
        let of_consumer = of_consumer.map(|it| it.plan(self.local, plan));
        let has_quota = quota::plan(self.local, remote, policy.map(|it| &it.spec), plan);
        let mapping = super::objects::mapping(Some(self.map), original);
        let previous = mapping.and_then(|it| it.phase);
        let was_accepted = previous == Some(Phase::Accepted);

        (of_manager && of_consumer == [true; 2] && has_quota || was_accepted)
            .then_some(Phase::Accepted)
    }

    fn namespace(&self, original: &str, remote: &str, labels: &PolicyLabels<'_>) -> Value {
        let labels = labels
            .iter()
            .filter_map(|(key, value)| Some((*key, (*value)?)));
        let labels: BTreeMap<_, _> = labels
            .chain([(labels::REMOTE_CLUSTER_ID, self.peer)])
            .collect();
        json!({"metadata": {
            "name": remote,
            "labels": labels,
            "annotations": {
                annotations::NAMESPACE_MAP: self.key.to_string(),
                annotations::ORIGINAL_NAME: original,
            },
        }})
    }

    fn present(&self, name: &str) -> Option<&'a Namespace> {
        self.local.namespaces.get(&Key::cluster(name))
    }

    /// Returns whether an entry had a namespace, which may have been deleted and is created again.
    fn had(&self, original: &str, remote: &str) -> bool {
        let mapping = super::objects::mapping(Some(self.map), original);
        mapping.is_some_and(|it| {
            it.remote_namespace.as_deref() == Some(remote)
                && matches!(it.phase, Some(Phase::Accepted | Phase::Terminating))
        })
    }

    /// Returns whether a namespace was created for this NamespaceMap.
    fn owns(&self, namespace: &Namespace) -> bool {
        let map = super::objects::map_of(&namespace.metadata);
        map == Some(self.key.to_string().as_str())
            && label(&namespace.metadata, labels::REMOTE_CLUSTER_ID) == Some(self.peer)
    }

    /// Plans the status, and an Event for each refused entry.
    fn report(
        &self,
        current: BTreeMap<String, NamespaceMapping>,
        refusals: Vec<Refused>,
        plan: &mut Plan<WorkItem>,
    ) {
        let object = Ref::of::<NamespaceMap>(&Cluster::Local, self.key);
        let mut reasons: Vec<_> = refusals
            .into_iter()
            .map(|(original, _, reason)| format!("{original}: {reason}"))
            .collect();
        let surplus = self
            .map
            .spec
            .desired_mapping
            .len()
            .saturating_sub(ENTRIES_MAX);
        if surplus > 0 {
            reasons.push(format!(
                "{surplus} entries exceed the limit of {ENTRIES_MAX}, and are ignored"
            ));
        }
        if let Some(first) = reasons.first() {
            let note = if reasons.len() > 1 {
                format!("{first} (and {} others)", reasons.len() - 1)
            } else {
                first.clone()
            };
            warn(plan, object.clone(), ("NamespaceRefused", note));
        }
        let old = self.map.status.clone().unwrap_or_default();
        let new = NamespaceMapStatus {
            current_mapping: current,
        };
        let value = |status| serde_json::to_value(status).unwrap_or_default();
        if let Some(patch) = merge_patch(&value(&old), &value(&new)) {
            let merge = Action::Merge(json!({"status": patch}));
            let mut write = Write::new(object, merge).subresource("status");
            write.uid.clone_from(&self.map.metadata.uid);
            plan.writes.push(write);
        }
    }
}

/// Labels of a namespace by the TenantPolicy of its consumer; `None` for one that it must not have.
type PolicyLabels<'a> = [(&'static str, Option<&'a str>); 2];

fn labels_of(policy: Option<&TenantPolicy>) -> PolicyLabels<'_> {
    let security = pod_security(policy.map(|it| &it.spec));
    let name = policy.and_then(|it| it.metadata.name.as_deref());
    [
        (labels::POD_SECURITY, Some(security)),
        (labels::TENANT_POLICY, name),
    ]
}

/// Returns whether a NamespaceMap is the replica of the peer whose tenant namespace it is in, and none is being deleted.
fn is_live(local: &Local<'_>, key: &Key, map: &NamespaceMap) -> bool {
    let origin = label(&map.metadata, labels::ORIGIN_ID);
    let is_of_peer = origin.is_some() && origin == local.peer_of(&key.namespace);

    is_replica(&map.metadata)
        && is_of_peer
        && map.metadata.deletion_timestamp.is_none()
        && !local.is_terminating(&key.namespace)
}

/// Returns the namespaces that were created for a NamespaceMap.
fn owned<'a>(local: &Local<'a>, key: &Key) -> Vec<(&'a Key, &'a Namespace)> {
    let namespaces = local.namespaces.indexed(BY_MAP, &key.to_string());
    let is_remote = |it: &Namespace| label(&it.metadata, labels::REMOTE_CLUSTER_ID).is_some();

    namespaces.filter(|(_, it)| is_remote(it)).collect()
}

fn original_name(namespace: &Namespace) -> Option<&str> {
    let annotations = namespace.metadata.annotations.as_ref()?;
    annotations
        .get(annotations::ORIGINAL_NAME)
        .map(String::as_str)
}

fn entry(phase: Phase, remote: &str) -> NamespaceMapping {
    NamespaceMapping {
        phase: Some(phase),
        remote_namespace: Some(remote.to_owned()),
    }
}

fn delete(plan: &mut Plan<WorkItem>, key: &Key, namespace: &Namespace) {
    if namespace.metadata.deletion_timestamp.is_none() {
        let object = Ref::of::<Namespace>(&Cluster::Local, key);
        plan.delete(object, namespace.metadata.uid.clone().unwrap_or_default());
    }
}
