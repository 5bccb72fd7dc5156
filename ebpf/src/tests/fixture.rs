//! Tables of a gateway with two peers. Both peers have the same pod CIDR as this cluster.
//!
//! ```text
//!            remapped CIDR     original CIDR
//!  here                        10.244.0.0/16    pods
//!                              10.70.0.0/16     external addresses
//!  peer 1    10.245.0.0/16     10.244.0.0/16    pods
//!            10.71.0.0/16      10.70.0.0/16     external addresses
//!  peer 2    10.246.0.0/16     10.244.0.0/16    pods
//!            10.72.0.0/16      10.70.0.0/16     external addresses
//!            10.247.3.0/24     192.168.7.0/24   a second pod CIDR
//! ```

use crate::tables::{Local, Outbound, Tables, Transit};
use ebpf_common::settings::Settings;
use ipam::Remap;
use ipam::rewrite::{Gateway, Peer, RemotePod};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

pub(super) const MSS_1: u16 = 1300;
pub(super) const MSS_2: u16 = 1240;

/// Outer address of the node whose pods are in 10.244.1.0/24.
pub(super) const NODE_1: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 2);

/// Outer address of the node whose pods are in 10.244.2.0/24.
pub(super) const NODE_2: Ipv4Addr = Ipv4Addr::new(172, 18, 0, 3);

/// Address of the IP object that stands for the pod 10.244.5.5 of peer 1.
pub(super) const STANDS_FOR_1: &str = "10.70.0.21";

/// Address of the IP object that stands for the pod 10.244.5.5 of peer 2.
pub(super) const STANDS_FOR_2: &str = "10.70.0.22";

/// ClusterIP of a Service with an IP object.
pub(super) const CLUSTER_IP: &str = "10.96.0.1";

/// Address of the IP object that stands for [`CLUSTER_IP`].
pub(super) const SERVICE: &str = "10.70.0.23";

/// Address that replaces the source of an ICMP error from peer 1, if that source is in no CIDR of
/// peer 1.
pub(super) const UNKNOWN_1: &str = "10.71.0.1";

/// The peer index, original CIDR and remapped CIDR of all remaps.
const REMAPS: [(u16, &str, &str); 5] = [
    (1, "10.244.0.0/16", "10.245.0.0/16"),
    (1, "10.70.0.0/16", "10.71.0.0/16"),
    (2, "10.244.0.0/16", "10.246.0.0/16"),
    (2, "10.70.0.0/16", "10.72.0.0/16"),
    (2, "192.168.7.0/24", "10.247.3.0/24"),
];

pub(super) fn tables() -> Tables {
    let mut tables = Tables::default();
    for (peer, original, seen) in REMAPS {
        let (original, seen) = (net(original), net(seen));
        let route = Outbound { peer, to: original };
        tables.outbound.insert(seen, route);
        tables.inbound.insert((peer, original), seen);
    }

    tables.local = [
        (net("10.244.0.0/16"), Local::Spread),
        (net("10.244.1.0/24"), Local::Node(NODE_1)),
        (net("10.244.2.0/24"), Local::Node(NODE_2)),
        (net("10.70.0.9/32"), Local::Node(NODE_2)),
    ]
    .into();
    for (peer, address) in [(1, STANDS_FOR_1), (2, STANDS_FOR_2)] {
        let (pod, address) = (ip("10.244.5.5"), ip(address));
        tables.transit.insert(address, Transit { peer, to: pod });
        tables.transit_sources.insert((peer, pod), address);
    }
    tables.services = [(ip(SERVICE), ip(CLUSTER_IP))].into();
    tables.spread = [NODE_1, NODE_2].into();
    tables.mss = [(1, MSS_1), (2, MSS_2)].into();
    tables.unknown_sources = [(1, ip(UNKNOWN_1)), (2, ip("10.72.0.1"))].into();
    tables.sources = [net("10.244.0.0/16"), net("10.70.0.0/16")].into();
    tables.nodes = [NODE_1, NODE_2].into();

    tables
}

/// Returns the contents of [`tables`] in the types of the reference model [`ipam::rewrite`].
pub(super) fn gateway() -> Gateway {
    let tables = tables();
    let peer = |number| Peer {
        remaps: remaps(number).collect(),
        unknown_source: tables.unknown_sources.get(&number).copied(),
    };
    let mapped_pods = (tables.transit.iter()).map(|(address, pod)| {
        let pod = RemotePod {
            peer: pod.peer,
            original: pod.to,
        };
        (*address, pod)
    });

    Gateway {
        peers: [(1, peer(1)), (2, peer(2))].into(),
        sources: tables.sources.iter().copied().collect(),
        local: tables.local.keys().copied().collect(),
        mapped_pods: mapped_pods.collect(),
        services: [(ip(SERVICE), ip(CLUSTER_IP))].into(),
    }
}

/// Returns the remapped address for an original address of a peer.
pub(super) fn seen(peer: u16, original: Ipv4Addr) -> Option<Ipv4Addr> {
    remaps(peer).find_map(|remap| remap.apply(original))
}

/// Returns the original address for a remapped address of a peer.
pub(super) fn original(peer: u16, seen: Ipv4Addr) -> Option<Ipv4Addr> {
    remaps(peer).find_map(|remap| remap.inverse().apply(seen))
}

fn remaps(peer: u16) -> impl Iterator<Item = Remap> {
    (REMAPS.into_iter())
        .filter(move |(of, ..)| *of == peer)
        .map(|(_, original, seen)| Remap::new(net(original), net(seen)).unwrap())
}

pub(super) fn node_mac() -> [u8; 6] {
    Settings::default().node_mac
}

pub(super) fn gateway_mac() -> [u8; 6] {
    Settings::default().gateway_mac
}

pub(super) fn peer_mac(peer: u16) -> [u8; 6] {
    Settings::default().peer_mac(peer)
}

pub(super) fn ip(address: &str) -> Ipv4Addr {
    address.parse().unwrap()
}

pub(super) fn net(net: &str) -> Ipv4Net {
    net.parse().unwrap()
}
