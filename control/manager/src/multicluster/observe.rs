//! The work items that a change concerns.

use super::OWNER;
use super::item::WorkItem;
use super::objects::{Local, import_of, pod_cidr, service_of};
use super::peers::Peer;
use crate::authentication::label;
use crate::shadow_endpoint_slice::Peers;
use control_api::tenant_namespace::peer_of;
use control_api::{
    Configuration, ExportedService, ForeignCluster, Network, ServiceExport, ServiceImport,
    TenantPolicy, labels,
};
use control_runtime::{Change, Cluster, Key};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;

/// Returns the work items that a change concerns.
pub(super) fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    let none = BTreeSet::new;
    if change.is::<ExportedService>() {
        let states = [change.before::<ExportedService>(), change.after()];
        let keys = states.into_iter().flatten().filter_map(service_of);
        return keys.map(WorkItem::Service).collect();
    }
    if change.object.cluster != Cluster::Local {
        return none();
    }
    if change.is::<ServiceExport>() {
        let namespace = WorkItem::Namespace(key.namespace.clone());
        [namespace, WorkItem::Service(key.clone())].into()
    } else if change.is::<ServiceImport>() {
        [WorkItem::Service(key.clone())].into()
    } else if change.is::<Service>() {
        let states =
            [change.before::<Service>(), change.after()].map(|it| it.map(|it| &it.metadata));
        of_object(local, states, Some(key.clone()))
    } else if change.is::<EndpointSlice>() {
        let states = [change.before::<EndpointSlice>(), change.after()];
        let states = states.map(|it| it.map(|it| &it.metadata));
        let mut services = states.into_iter().flatten();
        let name = services.find_map(|it| label(it, labels::SERVICE_NAME));
        of_object(local, states, name.map(|it| Key::new(&*key.namespace, it)))
    } else if change.is::<Namespace>() {
        of_namespace(local, change)
    } else if change.is::<ForeignCluster>() {
        let facts = |it: Option<&ForeignCluster>| it.map(|it| format!("{:?}", Peer::of(it)));
        if facts(change.before()) == facts(change.after()) {
            return none();
        }
        let mut items = all_items(local);
        items.insert(WorkItem::Peer(key.name.clone()));
        items
    } else if concerns_all(local, change) {
        all_items(local)
    } else {
        none()
    }
}

/// Returns the items of all Services.
pub(super) fn all_items(local: &Local<'_>) -> BTreeSet<WorkItem> {
    local.keys().into_iter().map(WorkItem::Service).collect()
}

/// Returns the items of the Services in a namespace.
pub(super) fn items_within(local: &Local<'_>, namespace: &str) -> BTreeSet<WorkItem> {
    let mut keys = local.keys();
    keys.retain(|key| key.namespace == namespace);

    keys.into_iter().map(WorkItem::Service).collect()
}

/// Returns whether a change concerns the addresses of peers or of this cluster.
fn concerns_all(local: &Local<'_>, change: &Change<'_>) -> bool {
    let is_of_liqo = change.object.key.namespace == local.settings.endpoints.namespace;
    if change.is::<ClusterRole>() {
        change.object.key.name == OWNER
    } else if change.is::<ConfigMap>() {
        is_of_liqo
    } else if change.is::<Configuration>() {
        !Peers::remapped(change).is_empty()
    } else if change.is::<Network>() {
        let cidr = |it: Option<&Network>| it.map(|it| (pod_cidr(it), it.spec.cidr.clone()));
        is_of_liqo && cidr(change.before()) != cidr(change.after())
    } else if change.is::<TenantPolicy>() {
        let cidrs = |it: Option<&TenantPolicy>| it.map(|it| it.spec.endpoint_cidrs.clone());
        cidrs(change.before()) != cidrs(change.after())
    } else if change.is::<Node>() {
        let addresses = |it: Option<&Node>| it?.status.as_ref()?.addresses.clone();
        addresses(change.before()) != addresses(change.after())
    } else {
        false
    }
}

/// Returns the items of an object of an imported Service, or of a Service that is exported.
fn of_object(
    local: &Local<'_>,
    states: [Option<&ObjectMeta>; 2],
    service: Option<Key>,
) -> BTreeSet<WorkItem> {
    let imports = states.into_iter().flatten().filter_map(import_of);
    let exported = service.filter(|key| local.exports.get(key).is_some());

    imports.chain(exported).map(WorkItem::Service).collect()
}

fn of_namespace(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let peer = |it: Option<&'_ Namespace>| {
        let peer = it.and_then(|it| peer_of(&it.metadata));
        peer.map(str::to_owned)
    };
    let facts = |it: Option<&Namespace>| {
        let metadata = &it?.metadata;
        let wanted = local.settings.namespace_labels.keys();
        let labels = wanted.map(|key| label(metadata, key).map(str::to_owned));
        Some((
            labels.collect::<Vec<_>>(),
            metadata.deletion_timestamp.is_some(),
        ))
    };
    if peer(change.before()) != peer(change.after()) {
        all_items(local)
    } else if facts(change.before()) != facts(change.after()) {
        items_within(local, &change.object.key.name)
    } else {
        BTreeSet::new()
    }
}
