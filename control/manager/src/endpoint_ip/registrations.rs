//! The resources of the controller.

use super::objects::{
    BY_ADDRESS, BY_NODE, IP_BY_ADDRESS, NODE_BY_ADDRESS, POD_BY_ADDRESS, pod_address,
};
use crate::network::keep;
use control_api::{IP, NamespaceOffloading, Network, VirtualNode, labels};
use control_runtime::{Cluster, Registration, Resource, Scope, Selector, WatchId};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::BTreeSet;

/// Returns the resources that the controller follows.
pub(crate) fn registrations() -> Vec<Registration> {
    vec![
        Registration::whole::<NamespaceOffloading>(Scope::All),
        Registration::whole::<VirtualNode>(Scope::All),
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
        Registration::of(Scope::Planned, keep::<Service>),
        Registration::of(Scope::Planned, keep::<Pod>).index(POD_BY_ADDRESS, |pod: &Pod| {
            let address = pod_address(pod);
            address.iter().map(ToString::to_string).collect()
        }),
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

/// Returns the watches in a namespace that is offloaded to this number of providers: of the EndpointSlices, of the Services whose
/// annotations apply to them, and of the pods at providers if there are several.
pub(super) fn watches(namespace: &str, providers: usize) -> BTreeSet<WatchId> {
    let watch = |resource, labels: String| WatchId {
        cluster: Cluster::Local,
        resource,
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels,
            ..Selector::default()
        },
    };
    let mut watches = BTreeSet::new();
    if providers > 0 {
        let resources = [Resource::of::<EndpointSlice>(), Resource::of::<Service>()];
        watches.extend(resources.map(|it| watch(it, String::new())));
    }
    if providers > 1 {
        let of_providers = format!("{}=true", labels::SHADOW_POD);
        watches.insert(watch(Resource::of::<Pod>(), of_providers));
    }

    watches
}
