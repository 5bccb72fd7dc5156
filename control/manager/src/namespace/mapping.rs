//! NamespaceMaps of this cluster: the namespaces that each provider is to create.
//!
//! Each entry is an item of its own, so the change of one namespace does not cost the number of namespaces.

use super::item::WorkItem;
use super::name::{NameError, remote_name};
use super::objects::{FINALIZER, Local};
use super::selector::{self, SelectorError};
use super::settings::Settings;
use control_api::{NamespaceMap, NamespaceOffloading, annotations, labels};
use control_runtime::{Action, Cluster, Env, Key, Plan, Protection, Ref, Write};
use serde_json::json;

/// Why a namespace cannot be offloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MappingError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("spec.clusterSelector: {0}")]
    Selector(#[from] SelectorError),
}

impl MappingError {
    /// Returns the reason of the Event.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Name(_) => "InvalidRemoteNamespaceName",
            Self::Selector(_) => "InvalidClusterSelector",
        }
    }
}

/// Plans the entry of a namespace in the NamespaceMap of a tenant namespace.
pub(super) fn plan_entry(
    local: &Local<'_>,
    settings: &Settings,
    (tenant, namespace): (&str, &str),
    env: &Env<'_>,
) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(peer) = local.peer_of(tenant) else {
        return plan;
    };
    let map = local.map(tenant);
    let present = map.and_then(|map| map.spec.desired_mapping.get(namespace));
    let offloading = active(local, namespace, env);
    let desired = match offloading.map(|it| desired(local, tenant, (namespace, it))) {
        None | Some(Ok(None)) => None,
        Some(Ok(Some(name))) => Some(name),
        // The mapping stays until the selector is valid again. The NamespaceOffloading has an Event.
        Some(Err(_)) => present.cloned(),
    };
    if present == desired.as_ref() {
        return plan;
    }
    let object = Ref::of::<NamespaceMap>(&Cluster::Local, &Key::new(tenant, peer));
    let mapping = json!({namespace: desired});
    let Some(map) = map else {
        if !local.is_terminating(tenant) {
            let mut map = created(&object, peer, mapping);
            if settings.has_virtual_kubelets {
                map["metadata"]["annotations"] = json!({annotations::REMOVES_OBJECTS: "true"});
            }
            plan.writes.push(Write::new(object, Action::Create(map)));
        }
        return plan;
    };
    if map.metadata.deletion_timestamp.is_none() {
        let merge = Action::Merge(json!({"spec": {"desiredMapping": mapping}}));
        let mut write = Write::new(object, merge);
        write.uid.clone_from(&map.metadata.uid);
        plan.writes.push(write);
    }

    plan
}

/// Plans the deletion of a NamespaceMap after the VirtualNodes of its provider.
pub(super) fn plan_map(local: &Local<'_>, tenant: &str) -> Plan<WorkItem> {
    let mut plan = Plan::default();
    let Some(map) = local.map(tenant) else {
        return plan;
    };
    let is_used = local.virtual_nodes_of(tenant).next().is_some();
    if !is_used && map.metadata.deletion_timestamp.is_none() {
        let peer = local.peer_of(tenant).unwrap_or_default();
        let object = Ref::of::<NamespaceMap>(&Cluster::Local, &Key::new(tenant, peer));
        plan.delete(object, map.metadata.uid.clone().unwrap_or_default());
    }

    plan
}

/// Returns the NamespaceOffloading of a namespace that is in effect: it is protected by its finalizer, and neither it nor
/// the namespace is being deleted.
fn active<'a>(
    local: &Local<'a>,
    namespace: &str,
    env: &Env<'_>,
) -> Option<&'a NamespaceOffloading> {
    let offloading = local.offloading(namespace)?;
    let key = Key::new(namespace, super::objects::NAME);
    let object = Ref::of::<NamespaceOffloading>(&Cluster::Local, &key);
    let entry = local.cache.entry(&object)?;
    let is_protected = FINALIZER.protection(entry, env.now) == Protection::Set;

    (is_protected && !local.is_terminating(namespace)).then_some(offloading)
}

/// Returns the remote name of a namespace at the provider of a tenant namespace; `None` if it does not select the provider.
///
/// # Errors
///
/// Returns [`MappingError`] if selector or name are invalid.
pub(super) fn desired(
    local: &Local<'_>,
    tenant: &str,
    (namespace, offloading): (&str, &NamespaceOffloading),
) -> Result<Option<String>, MappingError> {
    let selector = offloading.spec.cluster_selector.as_ref();
    let nodes = Vec::from_iter(local.virtual_nodes_of(tenant));
    let mut is_selected = false;
    for (key, node) in &nodes {
        let labels = local.node_labels(key, node);
        let is_terminating = node.metadata.deletion_timestamp.is_some();
        is_selected |= selector::matches(selector, &key.name, &labels)? && !is_terminating;
    }
    // The pods of virtual nodes that are being deleted end while the namespace exists.
    let is_ending = nodes
        .iter()
        .all(|(_, it)| it.metadata.deletion_timestamp.is_some());
    if !is_selected && is_ending && !nodes.is_empty() {
        let map = local.map(tenant);
        let present = map.and_then(|map| map.spec.desired_mapping.get(namespace));
        return Ok(present.cloned());
    }
    let Some(cluster_id) = local.cluster_id().filter(|_| is_selected) else {
        return Ok(None);
    };

    Ok(Some(remote_name(offloading, namespace, cluster_id)?))
}

fn created(object: &Ref, peer: &str, mapping: serde_json::Value) -> serde_json::Value {
    json!({
        "metadata": {
            "name": object.key.name,
            "namespace": object.key.namespace,
            "labels": {
                labels::REPLICATION: "true",
                labels::REMOTE_ID: peer,
                labels::REMOTE_CLUSTER_ID: peer,
            },
        },
        "spec": {"desiredMapping": mapping},
    })
}
