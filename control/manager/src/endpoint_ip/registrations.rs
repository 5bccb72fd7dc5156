//! The resources of the controller.

use super::objects::{BY_ADDRESS, BY_NODE, IP_BY_ADDRESS, NODE_BY_ADDRESS};
use crate::network::keep;
use control_api::{IP, NamespaceOffloading, Network};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;

/// Returns the resources that the controller follows.
pub(crate) fn registrations() -> Vec<Registration> {
    vec![
        Registration::whole::<NamespaceOffloading>(Scope::All),
        Registration::of(Scope::All, keep::<Namespace>),
        Registration::of(Scope::All, keep::<Network>),
        Registration::of(Scope::All, keep::<Node>).index(NODE_BY_ADDRESS, |node: &Node| {
            let status = node.status.as_ref();
            let addresses = status.and_then(|it| it.addresses.as_ref());
            let addresses = addresses.into_iter().flatten();
            addresses.map(|it| it.address.clone()).collect()
        }),
        Registration::of(Scope::All, keep::<IP>)
            .index(IP_BY_ADDRESS, |ip: &IP| vec![ip.spec.ip.clone()])
            .verbs(&["create", "delete"]),
        Registration::of(Scope::Planned, keep::<EndpointSlice>)
            .index(BY_ADDRESS, |slice: &EndpointSlice| {
                let endpoints = slice.endpoints.iter().flatten();
                let addresses = endpoints.flat_map(|it| it.addresses.clone());
                Vec::from_iter(BTreeSet::from_iter(addresses))
            })
            .index(BY_NODE, |slice: &EndpointSlice| {
                let endpoints = slice.endpoints.iter().flatten();
                let nodes = endpoints.filter_map(|it| it.node_name.clone());
                Vec::from_iter(BTreeSet::from_iter(nodes))
            }),
    ]
}

/// Returns the watch of the EndpointSlices of a namespace.
pub(super) fn watch(namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: Resource::of::<EndpointSlice>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector::default(),
    }
}
