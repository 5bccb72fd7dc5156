//! ICMP errors: what they quote must be what the receiver sent.

use super::generate::{address, errors, packets};
use super::overlay::{for_peer, from_node};
use super::packet::{Body, Packet};
use super::tap::from_peer;
use super::world::{NODE_1, UNKNOWN_1, ip, original, seen, tables};
use super::{DROP, Programs, REDIRECT, for_all};
use ebpf_common::counter::Counter;
use proptest::prelude::*;

/// Packets that crossed from peer 1 to a pod here, as the pod got them, and back.
fn from_here_to_peer() -> impl Strategy<Value = Packet> {
    packets(address("10.244.1.0/24"), address("10.244.0.0/16"))
}

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
fn an_error_to_a_peer_quotes_what_the_peer_sent() {
    let programs = Programs::load(&tables());
    let quoted = packets(address("10.245.0.0/16"), address("10.244.1.0/24"));
    // From the pod, or from a node's external address on the way to it.
    let reporter = prop_oneof![address("10.244.1.0/24"), address("10.70.0.0/16")];

    for_all(
        errors(reporter, address("10.245.0.0/16"), quoted),
        |packet| {
            let run = programs.overlay(&from_node(&packet.encode()));

            let mut expected = packet.clone();
            expected.destination = original(1, packet.destination).unwrap();
            if let Body::Error { quoted, .. } = &mut expected.body {
                quoted.source = original(1, quoted.source).unwrap();
            }
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, for_peer(1, &expected.encode()));
        },
    );
}

#[test]
fn an_error_from_a_peer_quotes_what_was_sent_here() {
    let programs = Programs::load(&tables());
    let errors = errors(
        address("10.244.0.0/16"),
        address("10.244.1.0/24"),
        from_here_to_peer(),
    );

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
    let programs = Programs::load(&tables());
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

#[test]
fn an_error_from_an_unknown_router_about_what_was_never_sent_is_refused() {
    let programs = Programs::load(&tables());
    let never_sent = [
        // Not from the one who gets the error.
        datagram("10.244.1.11", "10.244.3.3"),
        // Not to this peer.
        datagram("10.244.1.10", "192.168.7.1"),
        datagram("10.244.1.10", "8.8.8.8"),
    ];

    for quoted in never_sent {
        let packet = error("172.16.0.1", "10.244.1.10", 3, quoted, 28).encode();
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapUnknownSource,
        );
    }
}

#[test]
fn an_unknown_source_gets_nothing_but_errors_through() {
    let programs = Programs::load(&tables());
    let quoted = datagram("10.244.1.10", "10.244.3.3");
    let echo = Body::Echo {
        kind: 8,
        payload: quoted.encode(),
    };
    let redirect = error("172.16.0.1", "10.244.1.10", 5, quoted, 28);
    let later_fragment = &error(
        "172.16.0.1",
        "10.244.1.10",
        3,
        datagram("10.244.1.10", "10.244.3.3"),
        48,
    )
    .fragments(8)[1];
    let refused = [
        Packet::new("172.16.0.1", "10.244.1.10", echo).encode(),
        redirect.encode(),
        later_fragment.clone(),
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
    let programs = Programs::load(&tables());

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

#[test]
fn a_quoted_address_outside_the_prefix_stays() {
    let programs = Programs::load(&tables());
    let quoted = datagram("10.246.3.3", "8.8.8.8");
    let packet = error("10.244.1.10", "10.245.3.3", 3, quoted, 48);

    let run = programs.overlay(&from_node(&packet.encode()));

    let mut expected = packet;
    expected.destination = ip("10.244.3.3");
    assert_ne!(run.verdict, DROP);
    assert_eq!(run.frame, for_peer(1, &expected.encode()));
}

#[test]
fn an_error_in_fragments_quotes_what_the_peer_sent() {
    let programs = Programs::load(&tables());
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
