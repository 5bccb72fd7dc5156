//! The resources of the controller of ShadowEndpointSlices.

use super::direct::Direct;
use super::objects::{BY_ADDRESS, BY_DIRECT, BY_SUBNET, addresses as addresses_of, subnets};
use super::peers::Peers;
use crate::network::keep;
use control_api::{ForeignCluster, Network, ShadowEndpointSlice, TenantPolicy, labels};
use control_runtime::{Registration, Scope};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;

/// ClusterRole that the manager binds to itself in the namespaces of consumers.
const ROLE: &str = "liqo-controller-manager-remote-namespace";

/// Returns the resources that the controller follows, with Liqo in namespace `liqo`.
pub(crate) fn registrations(liqo: &str) -> Vec<Registration> {
    let mut registrations = addresses(liqo);
    registrations.extend([
        // A ShadowEndpointSlice is the owner that controls its EndpointSlice.
        Registration::whole::<ShadowEndpointSlice>(Scope::All)
            .index(BY_DIRECT, |shadow: &ShadowEndpointSlice| {
                Direct::indexed(&shadow.metadata)
            })
            .subresource("finalizers", "update")
            .written_in(Scope::Bound(ROLE)),
        Registration::of(Scope::All, keep::<EndpointSlice>)
            .labels(format!(
                "{}={}",
                labels::MANAGED_BY,
                labels::MANAGED_BY_SHADOW_ENDPOINT_SLICE
            ))
            .index(BY_SUBNET, subnets)
            .verbs(&["create", "patch", "delete"])
            .written_in(Scope::Bound(ROLE)),
    ]);

    registrations
}

/// Returns the resources by which addresses of peers are translated and checked.
pub(crate) fn addresses(liqo: &str) -> Vec<Registration> {
    let [namespaces, configurations] = Peers::registrations();
    vec![
        namespaces,
        configurations,
        Registration::whole::<ForeignCluster>(Scope::All),
        Registration::whole::<TenantPolicy>(Scope::Namespace(liqo.to_owned())),
        Registration::of(Scope::All, keep::<Network>),
        Registration::of(Scope::All, keep::<Node>).index(BY_ADDRESS, |node: &Node| {
            let addresses = addresses_of(node).into_iter();
            addresses.map(|address| address.to_string()).collect()
        }),
    ]
}
