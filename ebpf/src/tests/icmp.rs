//! Tests of ICMP errors. The programs forward an error only if its receiver sent the quoted packet.
//! In a forwarded error, the quoted addresses equal the addresses of the packet as the receiver
//! sent it.

use super::fixture::{NODE_1, STANDS_FOR_2, UNKNOWN_1, ip, net, original, seen, tables};
use super::generate::{address, errors, packets};
use super::overlay::{for_peer, from_node};
use super::packet::{Body, Packet};
use super::tap::from_peer;
use super::{REDIRECT, for_all, load};
use crate::tables::Local;
use ebpf_common::counter::Counter;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

fn datagram(source: &str, destination: &str) -> Packet {
    let body = Body::Udp {
        ports: [1, 2],
        has_checksum: true,
        payload: vec![3; 20],
    };
    Packet::new(source, destination, body)
}

fn error(source: &str, destination: &str, kind: u8, quoted: Packet, keep: usize) -> Packet {
    let body = Body::Error {
        kind,
        code: 3,
        quoted: Box::new(quoted),
        keep,
    };
    Packet::new(source, destination, body)
}

#[test]
fn an_error_to_a_peer_quotes_the_packet_as_the_peer_sent_it() {
    let programs = load(&tables());
    let errors = address("10.245.0.0/16").prop_flat_map(|sender| {
        // The sender of the error is the destination pod, or a node on the path. The node has an
        // address in the external CIDR.
        let reporter = prop_oneof![address("10.244.1.0/24"), address("10.70.0.0/16")];
        let quoted = packets(Just(sender), address("10.244.1.0/24"));
        errors(reporter, Just(sender), quoted)
    });

    for_all(errors, |packet| {
        let run = programs.overlay(&from_node(&packet.encode()));

        let mut expected = packet.clone();
        expected.destination = original(1, packet.destination).unwrap();
        if let Body::Error { quoted, .. } = &mut expected.body {
            quoted.source = original(1, quoted.source).unwrap();
        }
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame, for_peer(1, &expected.encode()));
    });
}

#[test]
fn an_error_from_a_peer_quotes_the_packet_as_it_was_sent() {
    let programs = load(&tables());
    let errors = address("10.244.1.0/24").prop_flat_map(|sender| {
        let quoted = packets(Just(sender), address("10.244.0.0/16"));
        errors(address("10.244.0.0/16"), Just(sender), quoted)
    });

    for_all(errors, |packet| {
        let run = programs.tap(&from_peer(1, &packet.encode()));

        let mut expected = packet.clone();
        expected.source = seen(1, packet.source).unwrap();
        if let Body::Error { quoted, .. } = &mut expected.body {
            quoted.destination = seen(1, quoted.destination).unwrap();
        }
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame, from_peer(1, &expected.encode()));
        assert_eq!(run.node, NODE_1);
    });
}

#[test]
fn an_error_from_an_unknown_router_comes_from_the_peers_unknown_source_address() {
    let programs = load(&tables());
    let pod = address("10.244.1.0/24");
    let errors = pod.prop_flat_map(|pod| {
        let quoted = packets(Just(pod), address("10.244.0.0/16"));
        errors(address("172.16.0.0/12"), Just(pod), quoted)
    });

    for_all(errors, |packet| {
        let run = programs.tap(&from_peer(1, &packet.encode()));

        let mut expected = packet.clone();
        expected.source = ip(UNKNOWN_1);
        if let Body::Error { quoted, .. } = &mut expected.body {
            quoted.destination = seen(1, quoted.destination).unwrap();
        }
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame, from_peer(1, &expected.encode()));
    });
    assert_eq!(programs.count(Counter::TapUnknownSourceMapped), 512);
}

/// Peer 1 forges errors about packets that it did not receive. The sources of the errors are a pod,
/// a pod with an IP object, a router in no CIDR of the peer, and an address of the liveness probe.
#[test]
fn an_error_from_a_peer_about_a_packet_that_it_did_not_get_is_refused() {
    let programs = load(&tables());
    let foreign = [
        // The receiver of the error did not send this packet.
        datagram("10.244.1.11", "10.244.3.3"),
        // These packets were not sent to peer 1. The first two were sent to peer 2, and the others
        // to the internet and to a node.
        datagram("10.244.1.10", "192.168.7.1"),
        datagram("10.244.1.10", "10.246.3.3"),
        datagram("10.244.1.10", "8.8.8.8"),
        datagram("10.244.1.10", "172.18.0.2"),
        // The destination is the remapped address of the peer's pod, not the original address.
        datagram("10.244.1.10", "10.245.3.3"),
    ];

    for source in ["10.244.3.3", "10.244.5.5", "172.16.0.1", "169.254.18.2"] {
        for kind in [3, 4, 11, 12] {
            for quoted in &foreign {
                let packet = error(source, "10.244.1.10", kind, quoted.clone(), 28).encode();
                programs.assert_refused(
                    |programs| programs.tap(&from_peer(1, &packet)),
                    Counter::TapQuoteRefused,
                );
            }
        }
    }
}

#[test]
fn an_error_to_a_peer_about_a_packet_that_did_not_come_from_it_is_refused() {
    let programs = load(&tables());
    let foreign = [
        // The receiver of the error did not send these packets. The senders are another pod of
        // peer 1, and a pod of peer 2.
        datagram("10.245.3.4", "10.244.1.10"),
        datagram("10.246.3.3", "10.244.1.10"),
        // These packets were sent to an address outside of this cluster, and to a pod of peer 2.
        datagram("10.245.3.3", "8.8.8.8"),
        datagram("10.245.3.3", STANDS_FOR_2),
    ];

    for quoted in foreign {
        let packet = error("10.244.1.10", "10.245.3.3", 3, quoted, 28).encode();
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayQuoteRefused,
        );
    }
}

#[test]
fn a_redirect_never_crosses_clusters() {
    let programs = load(&tables());
    let quoted = datagram("10.244.1.10", "10.244.3.3");
    let packet = error("10.244.3.3", "10.244.1.10", 5, quoted, 28).encode();
    programs.assert_refused(
        |programs| programs.tap(&from_peer(1, &packet)),
        Counter::TapQuoteRefused,
    );

    let quoted = datagram("10.245.3.3", "10.244.1.10");
    let packet = error("10.244.1.10", "10.245.3.3", 5, quoted, 28).encode();
    programs.assert_refused(
        |programs| programs.overlay(&from_node(&packet)),
        Counter::OverlayQuoteRefused,
    );
}

/// If fragments overlap, a receiver may take the quoted addresses from the later fragment, which
/// the programs do not check.
#[test]
fn a_later_fragment_within_the_quoted_addresses_is_refused() {
    let programs = load(&tables());
    let quoted = datagram("10.244.1.10", "10.244.3.3");
    let fragments = error("10.244.3.3", "10.244.1.10", 3, quoted, 48).fragments(8);

    for fragment in &fragments[1..4] {
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, fragment)),
            Counter::TapMalformed,
        );
    }
    let behind = &fragments[4];
    assert_eq!(programs.tap(&from_peer(1, behind)).verdict, REDIRECT);
}

#[test]
fn only_errors_pass_from_an_unknown_source() {
    let programs = load(&tables());
    let quoted = datagram("10.244.1.10", "10.244.3.3");
    let echo = Body::Echo {
        kind: 8,
        payload: quoted.encode(),
    };
    let fragments = error("172.16.0.1", "10.244.1.10", 3, quoted, 48).fragments(32);
    let refused = [
        Packet::new("172.16.0.1", "10.244.1.10", echo).encode(),
        fragments[1].clone(),
    ];

    for packet in refused {
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapUnknownSource,
        );
    }
}

#[test]
fn an_error_that_quotes_no_header_is_refused() {
    let programs = load(&tables());

    for keep in [0, 8, 19] {
        let quoted = datagram("10.244.1.10", "10.244.3.3");
        let packet = error("10.244.3.3", "10.244.1.10", 3, quoted, keep).encode();
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapMalformed,
        );
        let quoted = datagram("10.245.3.3", "10.244.1.10");
        let packet = error("10.244.1.10", "10.245.3.3", 3, quoted, keep).encode();
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayMalformed,
        );
    }
}

/// The packet ends within its ICMP header, but the frame continues with the rest of the header and
/// a quoted packet.
#[test]
fn an_icmp_packet_that_ends_within_its_header_is_refused() {
    let programs = load(&tables());
    let cut = |packet: &Packet, len: u8| {
        let mut bytes = packet.encode();
        bytes[3] = 20 + len;
        bytes
    };

    for kind in [3, 8] {
        for len in 0..8 {
            let to_pod = error("10.244.3.3", "10.244.1.10", kind, quoted_by_pod(), 28);
            programs.assert_refused(
                |programs| programs.tap(&from_peer(1, &cut(&to_pod, len))),
                Counter::TapMalformed,
            );
            let transiting = error("10.244.5.5", STANDS_FOR_2, kind, quoted_by_pod(), 28);
            programs.assert_refused(
                |programs| programs.tap(&from_peer(1, &cut(&transiting, len))),
                Counter::TapMalformed,
            );
            let to_peer = error("10.244.1.10", "10.245.3.3", kind, quoted_by_pod(), 28);
            programs.assert_refused(
                |programs| programs.overlay(&from_node(&cut(&to_peer, len))),
                Counter::OverlayMalformed,
            );
        }
    }
    let echo = error("10.244.3.3", "10.244.1.10", 8, quoted_by_pod(), 28);
    let run = programs.tap(&from_peer(1, &cut(&echo, 8)));
    assert_eq!(run.verdict, REDIRECT);
}

fn quoted_by_pod() -> Packet {
    datagram("10.244.1.10", "10.244.3.3")
}

/// Path MTU discovery fails if the error reaches another node than the quoted flow, because only
/// the node of the flow can translate the error.
#[test]
fn an_error_reaches_the_node_of_a_spread_destination_that_has_the_quoted_flow() {
    let nodes = (1..=4).map(|host| Ipv4Addr::new(172, 18, 1, host));
    let mut tables = tables();
    tables.spread = nodes.collect();
    tables.local.insert(net("10.70.0.100/32"), Local::Spread);
    let programs = load(&tables);
    let mut chosen = BTreeSet::new();

    for host in 0..=255 {
        let client = format!("10.244.7.{host}");
        let request = datagram(&client, "10.70.0.100").encode();
        let node = programs.tap(&from_peer(1, &request)).node;
        chosen.insert(node);

        // The errors come from a router in no CIDR of the peer, from another pod and from the
        // client.
        for source in ["172.16.0.1", "10.244.3.3", &client] {
            for kind in [3, 11] {
                let reply = datagram("10.70.0.100", &client);
                let error = error(source, "10.70.0.100", kind, reply, 28).encode();
                let run = programs.tap(&from_peer(1, &error));
                assert_eq!((run.verdict, run.node), (REDIRECT, node), "from {source}");
            }
        }
    }
    assert_eq!(chosen.len(), 4, "each node has flows");
}

#[test]
fn an_error_in_fragments_quotes_the_packet_as_the_peer_sent_it() {
    let programs = load(&tables());
    let mut quoted = datagram("10.245.3.3", "10.244.1.10");
    quoted.body = Body::Udp {
        ports: [1, 2],
        has_checksum: true,
        payload: vec![7; 100],
    };
    let packet = error("10.244.1.10", "10.245.3.3", 3, quoted, 120);
    let mut expected = packet.clone();
    expected.destination = ip("10.244.3.3");
    if let Body::Error { quoted, .. } = &mut expected.body {
        quoted.source = ip("10.244.3.3");
    }

    for (fragment, expected) in packet.fragments(64).iter().zip(expected.fragments(64)) {
        let run = programs.overlay(&from_node(fragment));
        assert_eq!(run.frame, for_peer(1, &expected));
    }
}
