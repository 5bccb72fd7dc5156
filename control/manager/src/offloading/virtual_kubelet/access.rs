//! The watches of the objects of virtual kubelets, which follow the rights of the manager.

use super::source::Kubelets;
use crate::authentication::watch_of_secrets;
use crate::network::is_bound;
use crate::offloading::item::WorkItem;
use crate::offloading::objects::Local;
use control_api::labels;
use control_runtime::{Cluster, Plan, Resource, Selector, WatchChange, WatchId};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use std::collections::BTreeSet;

/// Whether the objects in a tenant namespace are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// They are.
    Listed,
    /// They will be.
    Pending,
    /// The namespace is gone, is being deleted with all that is in it, or is no tenant namespace.
    Ending,
}

impl Access {
    pub(super) fn of(local: &Local<'_>, namespace: &str) -> Self {
        if local.peer_of(namespace).is_none() || local.is_terminating(namespace) {
            return Self::Ending;
        }
        let is_listed = watches(namespace)
            .iter()
            .all(|id| local.cache.is_synced(id));

        if is_listed {
            Self::Listed
        } else {
            Self::Pending
        }
    }
}

/// The watches that the controller has added.
#[derive(Debug, Default)]
pub(in crate::offloading) struct Watches {
    added: BTreeSet<WatchId>,
}

impl Watches {
    /// Plans the watches in a namespace: none without rights there or without a VirtualNode.
    pub(in crate::offloading) fn plan(
        &mut self,
        local: &Local<'_>,
        kubelets: &Kubelets,
        namespace: &str,
    ) -> Plan<WorkItem> {
        let tenants = &kubelets.tenant_namespaces;
        let mut nodes = local.virtual_nodes.within(namespace);
        let is_needed = nodes.next().is_some()
            && local.peer_of(namespace).is_some()
            && is_bound(local.cache, &kubelets.namespace, tenants, namespace);
        let mut plan = Plan::default();
        for id in watches(namespace) {
            if is_needed && self.added.insert(id.clone()) {
                plan.watches.push(WatchChange::Add(id));
            } else if !is_needed && self.added.remove(&id) {
                plan.watches.push(WatchChange::Remove(id));
            }
        }

        plan
    }

    /// Notes the watch of offloaded pods if a plan adds it, and removes it if no Node `is_draining`.
    pub(in crate::offloading) fn follow_drains(
        &mut self,
        plan: &mut Plan<WorkItem>,
        is_draining: impl FnOnce() -> bool,
    ) {
        let id = offloaded_pods();
        if plan.watches.contains(&WatchChange::Add(id.clone())) {
            self.added.insert(id);
        } else if self.added.contains(&id) && !is_draining() {
            self.added.remove(&id);
            plan.watches.push(WatchChange::Remove(id));
        }
    }
}

/// Returns the watch of all pods that run in other clusters. It exists only while a Node is drained, because there may be
/// many.
pub(in crate::offloading) fn offloaded_pods() -> WatchId {
    watch::<Pod>(None, format!("{}=true", labels::SHADOW_POD))
}

/// Returns the watches in a tenant namespace.
fn watches(namespace: &str) -> [WatchId; 4] {
    let kubelets = format!(
        "{}={}",
        labels::OFFLOADING_COMPONENT,
        labels::OFFLOADING_COMPONENT_VIRTUAL_KUBELET
    );
    [
        // Without a selector, to find those of other owners.
        watch::<Deployment>(Some(namespace), String::new()),
        watch::<ServiceAccount>(Some(namespace), String::new()),
        watch::<Pod>(Some(namespace), kubelets),
        // Authentication needs the same watch.
        watch_of_secrets(namespace),
    ]
}

fn watch<K: kube::Resource<DynamicType = ()>>(namespace: Option<&str>, labels: String) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<K>(),
        namespace: namespace.map(str::to_owned),
        selector: Selector {
            labels,
            ..Selector::default()
        },
    }
}
