//! Tests of packets from one peer to another through this cluster.

use super::fixture::{STANDS_FOR_1, STANDS_FOR_2, ip, peer_mac, tables};
use super::generate::{address, errors, fragment_len, packets};
use super::packet::{Body, Packet, frame};
use super::tap::from_peer;
use super::{REDIRECT, for_all, load};
use ebpf_common::counter::Counter;
use proptest::prelude::*;

/// Returns the frame that the engine must read if the program forwards a packet of the peer `from`
/// to `peer`.
fn forwarded(from: u16, peer: u16, packet: &[u8]) -> Vec<u8> {
    frame(peer_mac(peer), peer_mac(from), packet)
}

fn datagram(source: &str, destination: &str) -> Packet {
    let body = Body::Udp {
        ports: [1, 2],
        has_checksum: true,
        payload: vec![3; 20],
    };
    Packet::new(source, destination, body)
}

/// Generates packets between the two pods with IP objects, whose original addresses are equal.
fn pods() -> impl Strategy<Value = Packet> {
    packets(Just(ip("10.244.5.5")), Just(ip(STANDS_FOR_2)))
}

fn remapped(packet: &Packet) -> Packet {
    Packet {
        source: ip(STANDS_FOR_1),
        destination: ip("10.244.5.5"),
        ttl: packet.ttl - 1,
        ..packet.clone()
    }
}

#[test]
fn a_packet_between_two_pods_with_ip_objects_is_remapped_at_both_ends() {
    let programs = load(&tables());

    for_all(pods(), |packet| {
        let run = programs.tap(&from_peer(1, &packet.encode()));

        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame, forwarded(1, 2, &remapped(&packet).encode()));
    });
    assert_eq!(programs.count(Counter::TapTransited), 512);
}

#[test]
fn fragments_between_two_pods_with_ip_objects_are_remapped() {
    let programs = load(&tables());

    for_all((pods(), fragment_len()), |(packet, len)| {
        let expected = remapped(&packet).fragments(len);

        for (fragment, expected) in packet.fragments(len).into_iter().zip(expected) {
            let run = programs.tap(&from_peer(1, &fragment));
            assert_eq!(run.frame, forwarded(1, 2, &expected));
        }
    });
}

#[test]
fn an_error_about_a_packet_between_peers_reaches_its_sender() {
    let programs = load(&tables());
    // The quoted packet has the addresses with which peer 2 received it: the source is the address
    // of the IP object that stands for the pod of peer 1.
    let quoted = packets(Just(ip(STANDS_FOR_1)), Just(ip("10.244.5.5")));
    // The destination pod of peer 2 sends the error, or a router on the path to it.
    let reporter = prop_oneof![Just(ip("10.244.5.5")), address("172.16.0.0/12")];

    for_all(errors(reporter, Just(ip(STANDS_FOR_1)), quoted), |packet| {
        let run = programs.tap(&from_peer(2, &packet.encode()));

        let mut expected = packet.clone();
        expected.source = ip(STANDS_FOR_2);
        expected.destination = ip("10.244.5.5");
        expected.ttl -= 1;
        if let Body::Error { quoted, .. } = &mut expected.body {
            quoted.source = ip("10.244.5.5");
            quoted.destination = ip(STANDS_FOR_2);
        }
        assert_eq!(run.verdict, REDIRECT);
        assert_eq!(run.frame, forwarded(2, 1, &expected.encode()));
    });
}

#[test]
fn a_pod_without_an_ip_object_is_refused() {
    let programs = load(&tables());
    let packet = datagram("10.244.5.6", STANDS_FOR_2).encode();

    programs.assert_refused(
        |programs| programs.tap(&from_peer(1, &packet)),
        Counter::TapTransitRefused,
    );
}

#[test]
fn the_prefixes_of_one_peer_are_refused_to_another() {
    let programs = load(&tables());

    for destination in ["10.246.5.5", "10.247.3.1", "10.245.1.1"] {
        let packet = datagram("10.244.5.5", destination).encode();
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet)),
            Counter::TapTransitRefused,
        );
    }
}

#[test]
fn an_error_about_a_packet_that_was_not_forwarded_is_refused() {
    let programs = load(&tables());
    let error = |source, quoted: &Packet| {
        let body = Body::Error {
            kind: 3,
            code: 1,
            quoted: Box::new(quoted.clone()),
            keep: 28,
        };
        Packet::new(source, STANDS_FOR_1, body).encode()
    };
    let foreign = [
        // The receiver of the error did not send these packets.
        datagram("10.244.5.6", "10.244.5.5"),
        datagram(STANDS_FOR_2, "10.244.5.5"),
        // The destination of the next packet is a pod of peer 2 without an IP object. The
        // destination of the last packet is the address of an IP object, not the original address
        // of a pod.
        datagram(STANDS_FOR_1, "10.244.5.6"),
        datagram(STANDS_FOR_1, STANDS_FOR_2),
    ];

    // The errors come from the pod with an IP object, from another pod and from a router.
    for (source, quoted) in ["10.244.5.5", "10.244.5.6", "172.16.0.1"]
        .into_iter()
        .flat_map(|source| foreign.iter().map(move |quoted| (source, quoted)))
    {
        let packet = error(source, quoted);
        programs.assert_refused(
            |programs| programs.tap(&from_peer(2, &packet)),
            Counter::TapQuoteRefused,
        );
    }
}

#[test]
fn a_packet_with_an_expired_ttl_is_dropped() {
    let programs = load(&tables());

    for ttl in [0, 1] {
        let mut packet = datagram("10.244.5.5", STANDS_FOR_2);
        packet.ttl = ttl;
        programs.assert_refused(
            |programs| programs.tap(&from_peer(1, &packet.encode())),
            Counter::TapTtlExceeded,
        );
    }
}
