//! Any packet in any direction: the kernel decides as `ipam` does.

use super::generate::{address, errors, packets};
use super::overlay::from_node;
use super::packet::{Body, Packet, frame};
use super::tap::from_peer;
use super::world::{STANDS_FOR_1, STANDS_FOR_2, gateway, ip, node_mac, peer_mac, tables};
use super::{Programs, REDIRECT, for_all};
use ebpf_common::counter::Counter;
use ipam::rewrite::{self, Header, Refusal, Verdict};
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// Addresses that mean something somewhere, and some that do not.
fn addresses() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        3 => address("10.244.0.0/16"),
        2 => address("10.245.0.0/16"),
        2 => address("10.246.0.0/16"),
        1 => address("10.70.0.0/16"),
        1 => address("10.71.0.0/16"),
        1 => address("192.168.7.0/24"),
        1 => address("10.247.3.0/24"),
        2 => Just(ip("10.244.5.5")),
        2 => prop::sample::select(&[STANDS_FOR_1, STANDS_FOR_2]).prop_map(ip),
        1 => address("0.0.0.0/0"),
    ]
    .prop_filter("the probe's", |address| {
        address.octets()[..3] != [169, 254, 19]
    })
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let to = addresses;
    prop_oneof![
        packets(addresses(), to()),
        errors(addresses(), to(), packets(addresses(), to())),
        // An error about a packet of the one who gets it.
        addresses().prop_flat_map(move |sender| {
            errors(addresses(), Just(sender), packets(Just(sender), to()))
        }),
    ]
}

/// The addresses of a packet, as the oracle takes them.
fn addresses_of(packet: &Packet) -> rewrite::Packet {
    let header = |packet: &Packet| Header {
        source: packet.source,
        destination: packet.destination,
    };
    let quote = if let Body::Error { quoted, .. } = &packet.body {
        Some(header(quoted))
    } else {
        None
    };

    rewrite::Packet {
        header: header(packet),
        quote,
    }
}

/// The packet with the addresses that the oracle wants.
fn with_addresses(packet: &Packet, addresses: &rewrite::Packet) -> Packet {
    let mut packet = packet.clone();
    packet.source = addresses.header.source;
    packet.destination = addresses.header.destination;
    if let (Body::Error { quoted, .. }, Some(quote)) = (&mut packet.body, addresses.quote) {
        quoted.source = quote.source;
        quoted.destination = quote.destination;
    }

    packet
}

#[test]
fn the_overlay_program_decides_as_the_oracle_does() {
    let programs = Programs::load(&tables());
    let oracle = gateway();

    for_all(any_packet(), |packet| {
        let frame_in = from_node(&packet.encode());
        match oracle.from_node(&addresses_of(&packet)) {
            Verdict::ToPeer(peer, addresses) => {
                let run = programs.overlay(&frame_in);
                let expected = with_addresses(&packet, &addresses).encode();
                assert_eq!(run.verdict, REDIRECT);
                assert_eq!(run.frame, frame(peer_mac(peer), node_mac(), &expected));
            }
            Verdict::Drop(refusal) => {
                let reason = match refusal {
                    Refusal::UnknownSource => Counter::OverlayUnknownSource,
                    Refusal::UnknownDestination | Refusal::Transit => {
                        Counter::OverlayUnknownDestination
                    }
                };
                programs.assert_refused(|programs| programs.overlay(&frame_in), reason);
            }
            Verdict::ToNode(_) => panic!("the oracle sends a node's packet to a node"),
        }
    });
}

#[test]
fn the_tap_program_decides_as_the_oracle_does() {
    let programs = Programs::load(&tables());
    let oracle = gateway();

    for_all((1..3u16, any_packet()), |(from, packet)| {
        let frame_in = from_peer(from, &packet.encode());
        match oracle.from_peer(from, &addresses_of(&packet)) {
            Verdict::ToNode(addresses) => {
                let run = programs.tap(&frame_in);
                let expected = with_addresses(&packet, &addresses).encode();
                assert_eq!(run.verdict, REDIRECT);
                assert_eq!(run.frame, from_peer(from, &expected));
            }
            Verdict::ToPeer(peer, addresses) => {
                let run = programs.tap(&frame_in);
                let mut expected = with_addresses(&packet, &addresses);
                expected.ttl -= 1;
                assert_eq!(run.verdict, REDIRECT);
                let expected = frame(peer_mac(peer), peer_mac(from), &expected.encode());
                assert_eq!(run.frame, expected);
            }
            Verdict::Drop(refusal) => {
                let reason = match refusal {
                    Refusal::UnknownSource => Counter::TapUnknownSource,
                    Refusal::UnknownDestination => Counter::TapUnknownDestination,
                    Refusal::Transit => Counter::TapTransitRefused,
                };
                programs.assert_refused(|programs| programs.tap(&frame_in), reason);
            }
        }
    });
}
