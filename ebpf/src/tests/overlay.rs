//! Tests of packets from a node to a peer.

use super::fixture::{gateway_mac, ip, node_mac, original, peer_mac, tables};
use super::generate::{address, fragment_len, packets};
use super::packet::{Body, Packet, frame};
use super::{REDIRECT, for_all, load, load_with};
use ebpf_common::counter::Counter;
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// Returns the frame with a node's packet, as the overlay device delivers it.
pub(super) fn from_node(packet: &[u8]) -> Vec<u8> {
    frame(gateway_mac(), node_mac(), packet)
}

/// Returns the frame with a packet for `peer`, as the engine must read it from the TAP.
pub(super) fn for_peer(peer: u16, packet: &[u8]) -> Vec<u8> {
    frame(peer_mac(peer), node_mac(), packet)
}

fn to_original(peer: u16, packet: &Packet) -> Packet {
    let destination = original(peer, packet.destination).unwrap();
    Packet {
        destination,
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
fn a_packet_reaches_its_peer_with_the_original_destination() {
    let programs = load(&tables());
    let remotes = [
        (1, "10.245.0.0/16"),
        (2, "10.246.0.0/16"),
        (2, "10.247.3.0/24"),
    ];

    for (peer, net) in remotes {
        for_all(packets(address("10.244.0.0/16"), address(net)), |packet| {
            let run = programs.overlay(&from_node(&packet.encode()));

            let expected = to_original(peer, &packet);
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, for_peer(peer, &expected.encode()));
        });
    }
}

#[test]
fn every_fragment_is_remapped_and_the_first_has_the_checksum() {
    let programs = load(&tables());
    let packets = packets(address("10.244.0.0/16"), address("10.245.0.0/16"));

    for_all((packets, fragment_len()), |(packet, len)| {
        let expected = to_original(1, &packet).fragments(len);

        for (fragment, expected) in packet.fragments(len).into_iter().zip(expected) {
            let run = programs.overlay(&from_node(&fragment));
            assert_eq!(run.verdict, REDIRECT);
            assert_eq!(run.frame, for_peer(1, &expected));
        }
    });
}

#[test]
fn a_zero_udp_checksum_is_sent_as_all_ones_and_an_absent_one_stays_absent() {
    let programs = load(&tables());
    let mut was_all_ones = 0;

    // The loop sets a word of the payload to all values, so that each checksum occurs.
    for word in 0..=u16::MAX {
        let mut packet = datagram("10.244.1.10", "10.245.1.10");
        packet.body = Body::Udp {
            ports: [1, 2],
            has_checksum: word % 128 != 0,
            payload: word.to_be_bytes().to_vec(),
        };
        let expected = to_original(1, &packet).encode();
        let is_all_ones = expected[26..28] == [0xff, 0xff];
        if word % 64 != 0 && !is_all_ones {
            continue;
        }

        let run = programs.overlay(&from_node(&packet.encode()));

        was_all_ones += u32::from(is_all_ones);
        assert_eq!(run.frame, for_peer(1, &expected));
    }

    assert!(was_all_ones > 0, "no payload has a checksum of zero");
}

#[test]
fn padding_behind_the_packet_stays() {
    let programs = load(&tables());
    let packet = datagram("10.244.1.10", "10.245.1.10");
    let padded = |packet: &Packet| [packet.encode(), vec![0xaa; 9]].concat();

    let run = programs.overlay(&from_node(&padded(&packet)));

    assert_eq!(run.frame, for_peer(1, &padded(&to_original(1, &packet))));
}

#[test]
fn a_frame_from_an_address_that_is_no_node_is_refused() {
    let programs = load_with(&tables(), ip("172.18.0.99"), false);
    let packet = datagram("10.244.1.10", "10.245.1.10").encode();

    programs.assert_refused(
        |programs| programs.overlay(&from_node(&packet)),
        Counter::OverlayUnknownNode,
    );
}

#[test]
fn a_source_outside_this_cluster_is_refused() {
    let programs = load(&tables());
    let is_foreign = |source: &Ipv4Addr| {
        let [a, b, ..] = source.octets();
        (a, b) != (10, 244) && (a, b) != (10, 70)
    };
    let foreign = address("0.0.0.0/0").prop_filter("local", is_foreign);

    for_all(packets(foreign, address("10.245.0.0/16")), |packet| {
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet.encode())),
            Counter::OverlayUnknownSource,
        );
    });
}

#[test]
fn a_destination_outside_all_peers_is_refused() {
    let programs = load(&tables());

    for destination in [
        "10.244.1.10",
        "10.248.0.1",
        "192.168.7.1",
        "10.247.2.1",
        "8.8.8.8",
    ] {
        let packet = datagram("10.244.1.10", destination).encode();
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayUnknownDestination,
        );
    }
}

/// If the program accepted forged ARP and IPv6 frames, the gateway's IP stack would process them.
#[test]
fn a_frame_that_is_not_ipv4_is_dropped() {
    let programs = load(&tables());

    for ethertype in [[0x86, 0xdd], [0x08, 0x06], [0x81, 0x00]] {
        for len in [54, 60, 200] {
            let mut frame = from_node(&vec![0x45; len - 14]);
            frame[12..14].copy_from_slice(&ethertype);
            programs.assert_refused(|programs| programs.overlay(&frame), Counter::OverlayNotIpv4);
        }
    }
}

#[test]
fn source_routes_at_any_offset_and_malformed_options_are_dropped() {
    let programs = load(&tables());
    let with_options = |options: Vec<u8>| {
        let mut packet = datagram("10.244.1.10", "10.245.1.10");
        packet.options = options;
        packet.encode()
    };

    for kind in [0x83, 0x89] {
        for before in 0..37 {
            let mut options = vec![1; before];
            options.extend([kind, 3, 4]);
            options.resize(options.len().next_multiple_of(4), 0);
            let packet = with_options(options);
            programs.assert_refused(
                |programs| programs.overlay(&from_node(&packet)),
                Counter::OverlaySourceRouted,
            );
        }
    }
    for malformed in [[7, 0, 4, 0], [7, 1, 4, 0], [7, 5, 4, 0], [1, 1, 1, 7]] {
        let packet = with_options(malformed.to_vec());
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayMalformed,
        );
    }
    // The first list contains the types of source routes only in the data of another option. The
    // second list contains such a type only after its end.
    for sound in [[7, 4, 0x83, 0x89], [0, 0x83, 3, 4]] {
        let run = programs.overlay(&from_node(&with_options(sound.to_vec())));
        assert_eq!(run.verdict, REDIRECT);
    }
}

#[test]
fn headers_that_contradict_the_packet_are_refused() {
    let programs = load(&tables());
    let whole = datagram("10.244.1.10", "10.245.1.10").encode();
    let changed = |at: usize, value: u8| {
        let mut packet = whole.clone();
        packet[at] = value;
        packet
    };
    let malformed = [
        whole[..whole.len() - 1].to_vec(), // The frame ends before the packet.
        changed(0, 0x65),                  // The version is 6.
        changed(0, 0x44),                  // The header length is below 20 bytes.
        changed(0, 0x4f),                  // The header is longer than the packet.
        changed(2, 0xff),                  // The total length exceeds the frame.
        changed(3, 19),                    // The total length is below the header length.
        changed(3, 27),                    // The packet ends inside of the UDP header.
    ];

    for packet in malformed {
        programs.assert_refused(
            |programs| programs.overlay(&from_node(&packet)),
            Counter::OverlayMalformed,
        );
    }
}

#[test]
fn a_first_fragment_without_the_checksum_is_refused() {
    let programs = load(&tables());
    let mut packet = datagram("10.244.1.10", "10.245.1.10");
    packet.body = Body::Tcp {
        ports: [1, 2],
        flags: 0x10,
        options: Vec::new(),
        payload: vec![0; 40],
    };
    let first = &packet.fragments(16)[0];

    programs.assert_refused(
        |programs| programs.overlay(&from_node(first)),
        Counter::OverlayMalformed,
    );
}
