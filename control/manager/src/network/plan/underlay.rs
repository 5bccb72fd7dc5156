//! The addresses of the underlay. No CIDR of a peer may contain them, because packets of a tunnel would be routed
//! into a tunnel.

use super::Planner;
use super::gateway::Gateway;
use crate::network::kind::{Key, Kind};
use crate::network::local::is_real;
use k8s_openapi::api::core::v1::Node;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Addresses of the underlay, and the object that has them.
type Source = ((Kind, Key), BTreeSet<Ipv4Addr>);

/// Returns the addresses of all nodes.
pub(super) fn of_nodes(planner: &Planner<'_>) -> impl Iterator<Item = Source> + use<> {
    let nodes = planner.local.nodes.iter();
    let sources: Vec<_> = nodes
        .map(|(key, node)| {
            let addresses = BTreeSet::from_iter(node_addresses(node));
            ((Kind::Node, key.clone()), addresses)
        })
        .collect();

    sources.into_iter()
}

/// Returns the endpoints of all peers.
pub(super) fn of_peers(planner: &Planner<'_>) -> impl Iterator<Item = Source> + use<> {
    let clients = planner.local.clients.iter();
    let peers: BTreeSet<_> = clients
        .map(|(key, _)| planner.local.peer_of(Kind::GatewayClient, key))
        .collect();
    let sources: Vec<_> = peers
        .into_iter()
        .map(|peer| {
            let addresses = endpoints(planner, &peer);
            (source(&peer), addresses)
        })
        .collect();

    sources.into_iter()
}

/// Returns the identification of the endpoints of a peer: its GatewayClients.
pub(super) fn source(peer: &str) -> (Kind, Key) {
    (Kind::GatewayClient, Key::cluster(peer))
}

/// Returns the addresses in the status of a node.
pub(super) fn node_addresses(node: &Node) -> Vec<Ipv4Addr> {
    if !is_real(node) {
        return Vec::new();
    }
    let addresses = node.status.as_ref().and_then(|it| it.addresses.as_ref());

    addresses
        .into_iter()
        .flatten()
        .filter(|it| it.type_ == "InternalIP")
        .filter_map(|it| control_fabric::address(&it.address).ok())
        .collect()
}

/// Returns the endpoints of a peer.
pub(super) fn endpoints(planner: &Planner<'_>, peer: &str) -> BTreeSet<Ipv4Addr> {
    let gateways = Gateway::of_peer(planner, peer);

    gateways
        .iter()
        .filter_map(|gateway| match gateway {
            Gateway::Client(_, client) => client.spec.endpoint.as_ref(),
            Gateway::Server(..) => None,
        })
        .flat_map(|endpoint| &endpoint.addresses)
        .filter_map(|address| control_fabric::address(address).ok())
        .collect()
}

/// Returns the Networks whose CIDR contains an address.
pub(super) fn covering(planner: &Planner<'_>, address: Ipv4Addr) -> Vec<Key> {
    let networks = planner.local.networks.iter();

    networks
        .filter(|(key, _)| {
            let held = planner.allocation.held(key);
            held.is_some_and(|held| held.contains(&address))
        })
        .map(|(key, _)| key.clone())
        .collect()
}
