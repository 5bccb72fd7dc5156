//! Tests of packets from a peer to a node.

use super::fixture::{NODE_1, NODE_2, gateway_mac, net, node_mac, peer_mac, seen, tables};
use super::generate::{address, fragment_len, packets};
use super::packet::{Body, Packet, frame};
use super::{REDIRECT, for_all, load};
use crate::tables::Local;
use ebpf_common::counter::Counter;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Returns the frame with a packet from `peer`, as the engine writes it to the TAP.
///
/// The program does not change the MAC addresses of a frame that it forwards to a node.
pub(super) fn from_peer(peer: u16, packet: &[u8]) -> Vec<u8> {
    frame(node_mac(), peer_mac(peer), packet)
}

fn to_seen(peer: u16, packet: &Packet) -> Packet {
    let source = seen(peer, packet.source).unwrap();
    Packet {
        source,
        ..packet.clone()
    }
}

fn datagram(source: &str, destination: &str) -> Packet {
    let body = Body::Udp {
        ports: [1, 2],
        has_checksum: true,
        payload: vec![3; 20],
    };
    Packet::new(source, destination, body)
}

#[test]
fn a_packet_reaches_the_node_of_its_pod_from_the_remapped_source() {
    let programs = load(&tables());
    let sources = [
        (1, "10.244.0.0/16"),
        (2, "10.244.0.0/16"),
        (2, "192.168.7.0/24"),
    ];
    let destinations = [("10.244.1.0/24", NODE_1), ("10.244.2.0/24", NODE_2)];

    for (peer, source) in sources {
        for (destination, node) in destinations {
            for_all(packets(address(source), address(destination)), |packet| {
                let run = programs.tap(&from_peer(peer, &packet.encode()));

                let expected = to_seen(peer, &packet);
                assert_eq!(run.verdict, REDIRECT);
                assert_eq!(run.frame, from_peer(peer, &expected.encode()));
                assert_eq!(run.node, node);
            });
        }
    }
}

#[test]
fn every_fragment_is_remapped_and_the_first_has_the_checksum() {
    let programs = load(&tables());
    let packets = packets(address("10.244.0.0/16"), address("10.244.1.0/24"));

    for_all((packets, fragment_len()), |(packet, len)| {
        let expected = to_seen(2, &packet).fragments(len);

        for (fragment, expected) in packet.fragments(len).into_iter().zip(expected) {
            let run = programs.tap(&from_peer(2, &fragment));
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, from_peer(2, &expected));
        }
    });
}

#[test]
fn a_peer_sends_only_from_its_own_prefixes() {
    let programs = load(&tables());
    // 192.168.7.0/24 is a CIDR of peer 2 only. 10.245.0.0/16 is a remapped CIDR of peer 1, which
    // never occurs in packets from peer 1 itself.
    let foreign = address("0.0.0.0/0").prop_filter("known", |source| seen(1, *source).is_none());
    let foreign = prop_oneof![foreign, address("192.168.7.0/24"), address("10.245.0.0/16")];

    for_all(packets(foreign, address("10.244.1.0/24")), |packet| {
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet.encode())),
            Counter::TapUnknownSource,
        );
    });
}

#[test]
fn a_destination_outside_this_cluster_is_refused() {
    let programs = load(&tables());

    for destination in ["10.248.0.1", "172.18.0.2", "169.254.19.1", "8.8.8.8"] {
        let packet = datagram("10.244.1.10", destination).encode();
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapUnknownDestination,
        );
    }
}

#[test]
fn a_frame_whose_mac_address_encodes_no_peer_is_dropped() {
    let programs = load(&tables());
    let packet = datagram("10.244.1.10", "10.244.1.11").encode();

    for source in [gateway_mac(), node_mac(), [0; 6], [0xff; 6]] {
        programs.assert_refused(
            |programs| programs.tap(&frame(node_mac(), source, &packet)),
            Counter::TapUnknownPeer,
        );
    }
    // Peer 3 has no CIDR, so the program accepts no source address from it.
    programs.assert_refused(
        |programs| programs.tap(&from_peer(3, &packet)),
        Counter::TapUnknownSource,
    );
}

#[test]
fn a_frame_that_is_not_ipv4_or_malformed_is_dropped() {
    let programs = load(&tables());
    let whole = datagram("10.244.1.10", "10.244.1.11").encode();
    let mut ipv6 = from_peer(1, &whole);
    ipv6.resize(80, 0);
    ipv6[12..14].copy_from_slice(&[0x86, 0xdd]);

    programs.assert_refused(|programs| programs.tap(&ipv6), Counter::TapNotIpv4);
    programs.assert_refused(
        |programs| programs.tap(&from_peer(1, &whole[..24])),
        Counter::TapMalformed,
    );
}

#[test]
fn a_source_route_is_refused() {
    let programs = load(&tables());

    for (kind, destination) in [(0x83, "10.244.1.11"), (0x89, "10.70.0.22")] {
        let mut packet = datagram("10.244.5.5", destination);
        packet.options = vec![1, kind, 7, 4, 192, 0, 2, 1];
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet.encode())),
            Counter::TapSourceRouted,
        );
    }
}

#[test]
fn a_source_always_reaches_the_same_node_of_a_spread_destination() {
    let nodes: Vec<_> = (1..=4)
        .map(|host| Ipv4Addr::new(172, 18, 1, host))
        .collect();
    let chosen = |nodes: &[Ipv4Addr]| -> BTreeMap<Ipv4Addr, Ipv4Addr> {
        let mut tables = tables();
        tables.spread = nodes.iter().copied().collect();
        tables.local.insert(net("10.70.0.100/32"), Local::Spread);
        let programs = load(&tables);
        (0..=255)
            .map(|host| {
                let source = Ipv4Addr::new(10, 244, 7, host);
                let packet = datagram(&source.to_string(), "10.70.0.100").encode();
                (source, programs.tap(&from_peer(1, &packet)).node)
            })
            .collect()
    };

    let all = chosen(&nodes);
    let without_last = chosen(&nodes[..3]);

    for node in &nodes {
        assert!(
            all.values().any(|chosen| chosen == node),
            "{node} is never chosen"
        );
    }
    for (source, node) in all {
        if node != nodes[3] {
            assert_eq!(
                without_last[&source], node,
                "{source} moved although its node remains"
            );
        }
    }
    assert_eq!(
        chosen(&nodes),
        chosen(&[nodes[3], nodes[1], nodes[0], nodes[2]])
    );
}
