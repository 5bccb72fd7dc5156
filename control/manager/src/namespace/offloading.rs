//! NamespaceOffloadings: the namespaces of this cluster whose pods may run in other clusters.

use super::binding::{self, Binding};
use super::item::WorkItem;
use super::mapping::{self, MappingError};
use super::objects::{BY_ENTRY, FINALIZER, Local, NAME, mapping};
use super::phase::{self, State};
use super::settings::Settings;
use crate::authentication::{is_replica, label, warn};
use crate::replication::is_dead;
use control_api::offloading::namespace_offloading::PodOffloadingStrategy as Strategy;
use control_api::{NamespaceMap, NamespaceOffloading, NamespaceOffloadingStatus, labels};
use control_runtime::{Action, Cluster, Env, Key, Plan, Protection, Ref, Write, merge_patch};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Plans the NamespaceOffloading of a namespace.
pub(super) fn plan(
    local: &Local<'_>,
    settings: &Settings,
    namespace: &str,
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let key = Key::new(namespace, NAME);
    let object = Ref::of::<NamespaceOffloading>(&Cluster::Local, &key);
    let offloading = local.offloading(namespace).zip(local.cache.entry(&object));
    let Some((offloading, entry)) = offloading else {
        plan_label(local, namespace, false, &mut plan);
        binding::delete_of_kubelets(local, namespace, &mut plan);
        return plan;
    };
    let is_clean = maps(local, namespace).all(|(key, _)| {
        let peer = local.peer_of(&key.namespace);
        peer.is_some_and(|peer| is_dead(peer, local.cache))
    });
    let item = WorkItem::Offloading(namespace.to_owned());
    let protection = FINALIZER.apply(&mut plan, (&object, entry), item, is_clean, env.now);
    if protection == Protection::Missing {
        return plan;
    }
    let is_active = protection == Protection::Set;
    let strategy = offloading.spec.pod_offloading_strategy.unwrap_or_default();
    plan_label(
        local,
        namespace,
        is_active && strategy != Strategy::Local,
        &mut plan,
    );
    if settings.has_virtual_kubelets {
        plan_bindings(local, namespace, &mut plan);
    }
    let (states, error) = states(local, (namespace, offloading), is_active);
    if let Some(error) = error {
        warn(
            &mut plan,
            object.clone(),
            (error.reason(), error.to_string()),
        );
    }
    if protection != Protection::Released {
        plan_status(
            local,
            (namespace, offloading),
            (&object, &states),
            env,
            &mut plan,
        );
    }

    plan
}

/// Returns the NamespaceMaps of this cluster with an entry of a namespace.
fn maps<'a>(
    local: &Local<'a>,
    namespace: &str,
) -> impl Iterator<Item = (&'a Key, &'a NamespaceMap)> + use<'a> {
    let maps = local.maps.indexed(BY_ENTRY, namespace);
    maps.filter(|(_, map)| !is_replica(&map.metadata))
}

/// Plans the label by which the API server selects the namespaces whose pods the webhook changes.
fn plan_label(local: &Local<'_>, namespace: &str, is_set: bool, plan: &mut Plan<WorkItem>) {
    let key = Key::cluster(namespace);
    let Some(present) = local.namespaces.get(&key) else {
        return;
    };
    let desired = is_set.then_some("true");
    if label(&present.metadata, labels::SCHEDULING_ENABLED) == desired {
        return;
    }
    let object = Ref::of::<Namespace>(&Cluster::Local, &key);
    let merge = json!({"metadata": {"labels": {labels::SCHEDULING_ENABLED: desired}}});
    let mut write = Write::new(object, Action::Merge(merge));
    write.uid.clone_from(&present.metadata.uid);
    plan.writes.push(write);
}

/// Plans the rights of the virtual kubelets, which last as long as the entries of their providers.
fn plan_bindings(local: &Local<'_>, namespace: &str, plan: &mut Plan<WorkItem>) {
    let kubelets =
        maps(local, namespace).flat_map(|(key, _)| local.virtual_nodes_of(&key.namespace));
    let kubelets: BTreeSet<_> = kubelets.map(|(key, _)| key.clone()).collect();
    if kubelets.is_empty() {
        binding::delete_of_kubelets(local, namespace, plan);
    } else if !local.is_terminating(namespace) {
        let kubelets = Vec::from_iter(kubelets);
        for binding in Binding::of_kubelets(namespace, &kubelets) {
            binding.plan(local, plan);
        }
    }
}

/// Returns the state at each provider, by its cluster ID, and why a provider has none.
fn states(
    local: &Local<'_>,
    (namespace, offloading): (&str, &NamespaceOffloading),
    is_active: bool,
) -> (BTreeMap<String, State>, Option<MappingError>) {
    let nodes = local.virtual_nodes.iter().map(|(key, _)| &*key.namespace);
    let mapped = maps(local, namespace).map(|(key, _)| &*key.namespace);
    let tenants: BTreeSet<&str> = nodes.chain(mapped).collect();
    let (mut states, mut error) = (BTreeMap::new(), None);
    for tenant in tenants {
        let Some(peer) = local.peer_of(tenant) else {
            continue;
        };
        let current = mapping(local.map(tenant), namespace);
        let state = match mapping::desired(local, tenant, (namespace, offloading)) {
            Ok(desired) => State::of(is_active && desired.is_some(), current),
            Err(failure @ MappingError::Name(_)) => {
                error = Some(failure);
                State::Failed
            }
            Err(failure @ MappingError::Selector(_)) => {
                error = Some(failure);
                State::of(current.is_some(), current)
            }
        };
        states.insert(peer.to_owned(), state);
    }

    (states, error)
}

fn plan_status(
    local: &Local<'_>,
    (namespace, offloading): (&str, &NamespaceOffloading),
    (object, states): (&Ref, &BTreeMap<String, State>),
    env: &Env<'_>,
    plan: &mut Plan<WorkItem>,
) {
    let old = offloading.status.clone().unwrap_or_default();
    let is_terminating = offloading.metadata.deletion_timestamp.is_some();
    let name = local
        .cluster_id()
        .and_then(|cluster_id| super::name::remote_name(offloading, namespace, cluster_id).ok());
    let conditions = states.iter().map(|(peer, state)| {
        let old = old.remote_namespaces_conditions.get(peer);
        let old = old.map_or(&[][..], Vec::as_slice);
        (peer.clone(), phase::conditions(state, old, env.now))
    });
    let new = NamespaceOffloadingStatus {
        observed_generation: offloading.metadata.generation,
        offloading_phase: Some(phase::phase(is_terminating, states).to_owned()),
        remote_namespace_name: name,
        remote_namespaces_conditions: conditions.collect(),
    };
    let value = |status| serde_json::to_value(status).unwrap_or_default();
    if let Some(patch) = merge_patch(&value(&old), &value(&new)) {
        let merge = Action::Merge(json!({"status": patch}));
        let mut write = Write::new(object.clone(), merge).subresource("status");
        write.uid.clone_from(&offloading.metadata.uid);
        plan.writes.push(write);
    }
}
