//! The work items that a change concerns.

use super::item::WorkItem;
use super::objects::{Health, Local, addresses, internal_cidr, is_reflected};
use super::peers::{Peers, consumer_of};
use control_api::authentication::tenant_policy;
use control_api::tenant_namespace::peer_of;
use control_api::{Configuration, ForeignCluster, Network, ShadowEndpointSlice, TenantPolicy};
use control_runtime::Change;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Returns the work items that a change concerns, except those that a former address of a node concerns.
pub(super) fn items_of(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let key = &change.object.key;
    let none = BTreeSet::new();
    if change.is::<ShadowEndpointSlice>() {
        [local.item(key)].into()
    } else if change.is::<EndpointSlice>() {
        let states = [change.before::<EndpointSlice>(), change.after()];
        let mut states = states.into_iter().flatten();
        let is_reflected = states.any(|slice| is_reflected(&slice.metadata));
        let has_shadow = local.shadows.get(key).is_some();
        (is_reflected && has_shadow)
            .then(|| local.item(key))
            .into_iter()
            .collect()
    } else if change.is::<Namespace>() {
        of_namespace(local, change)
    } else if change.is::<Configuration>() {
        let peers = Peers::remapped(change);
        peers
            .into_iter()
            .flat_map(|peer| local.items_of_peer(peer))
            .collect()
    } else if change.is::<ForeignCluster>() {
        let health = |it: Option<&ForeignCluster>| it.and_then(Health::of);
        if health(change.before()) == health(change.after()) {
            return none;
        }
        local.items_of_peer(&key.name)
    } else if change.is::<TenantPolicy>() {
        let cidrs = |it: Option<&TenantPolicy>| it.map(|it| it.spec.endpoint_cidrs.clone());
        if cidrs(change.before()) == cidrs(change.after()) {
            none
        } else if key.name == tenant_policy::DEFAULT {
            let mut items = local.items();
            items.retain(|item| !local.has_policy(&item.peer));
            items
        } else {
            local.items_of_peer(&key.name)
        }
    } else if change.is::<Network>() {
        let is_of_liqo = key.namespace == local.settings.namespace;
        let cidr = |it: Option<&Network>| it.and_then(internal_cidr).filter(|_| is_of_liqo);
        if cidr(change.before()) == cidr(change.after()) {
            return none;
        }
        local.items()
    } else if change.is::<Node>() {
        let (before, after) = of_node(change);
        let new = after.difference(&before);
        new.flat_map(|address| local.items_with(*address)).collect()
    } else {
        none
    }
}

/// Returns whether a node lost an address.
pub(super) fn loses_address(change: &Change<'_>) -> bool {
    let (before, after) = of_node(change);

    !before.is_subset(&after)
}

/// Returns the addresses of a node before and after a change.
fn of_node(change: &Change<'_>) -> (BTreeSet<Ipv4Addr>, BTreeSet<Ipv4Addr>) {
    let addresses = |node: Option<&Node>| node.map(addresses).unwrap_or_default();

    (addresses(change.before()), addresses(change.after()))
}

/// Returns the items in a namespace of a consumer, or those of the peer of a tenant namespace.
fn of_namespace(local: &Local<'_>, change: &Change<'_>) -> BTreeSet<WorkItem> {
    let states = [change.before::<Namespace>(), change.after()];
    let facts = states.map(|it| {
        let metadata = &it?.metadata;
        let consumer = consumer_of(metadata);
        let annotations = metadata.annotations.as_ref().filter(|_| consumer.is_some());
        let is_terminating = metadata.deletion_timestamp.is_some();
        Some((consumer, annotations, peer_of(metadata), is_terminating))
    });
    if facts[0] == facts[1] {
        return BTreeSet::new();
    }
    let peers: BTreeSet<_> = facts.iter().flatten().filter_map(|it| it.2).collect();
    let mut items = local.items_within(&change.object.key.name);
    items.extend(peers.into_iter().flat_map(|peer| local.items_of_peer(peer)));

    items
}
