//! Tests that the programs forward and drop the same packets as the reference model (*oracle*) in
//! [`ipam::rewrite`].

use super::fixture::{
    CLUSTER_IP, SERVICE, STANDS_FOR_1, STANDS_FOR_2, gateway, ip, node_mac, peer_mac, tables,
};
use super::generate::{address, errors, packets};
use super::overlay::from_node;
use super::packet::{Body, Packet, frame};
use super::tap::from_peer;
use super::{DROP, REDIRECT, for_all, load};
use ebpf_common::counter::Counter;
use ipam::rewrite::{self, Refusal, Verdict};
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// Generates addresses from all prefixes of all clusters, and some other addresses.
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
        3 => prop::sample::select(&[CLUSTER_IP, SERVICE]).prop_map(ip),
        1 => address("0.0.0.0/0"),
    ]
    .prop_filter("the probe's", |address| {
        address.octets()[..3] != [169, 254, 19]
    })
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let to = addresses;
    prop_oneof![
        packets(addresses(), to()).boxed(),
        errors(addresses(), to(), packets(addresses(), to())).boxed(),
        // These errors quote a packet of their receiver, so that the programs forward some of them.
        addresses()
            .prop_flat_map(move |sender| {
                errors(addresses(), Just(sender), packets(Just(sender), to()))
            })
            .boxed(),
        routed(packets(addresses(), to())).boxed(),
    ]
}

/// Truncates the IPv4 options of packets to 32 bytes, and appends a source route option.
fn routed(packets: impl Strategy<Value = Packet>) -> impl Strategy<Value = Packet> {
    (packets, prop::sample::select(&[0x83_u8, 0x89])).prop_map(|(mut packet, kind)| {
        packet.options.truncate(32);
        packet.options.extend([kind, 7, 4, 192, 0, 2, 1, 0]);
        packet
    })
}

/// Converts the packet into the oracle's type.
fn parsed(packet: &Packet) -> rewrite::Packet {
    rewrite::Packet::parse(&packet.encode()).unwrap()
}

/// Returns the packet with the addresses and the TTL that the oracle computed.
fn rewritten(packet: &Packet, by_oracle: &rewrite::Packet) -> Packet {
    let mut packet = packet.clone();
    packet.source = by_oracle.header.source;
    packet.destination = by_oracle.header.destination;
    packet.ttl = by_oracle.ttl;
    let quote = by_oracle.error.and_then(|error| error.quote);
    if let (Body::Error { quoted, .. }, Some(quote)) = (&mut packet.body, quote) {
        quoted.source = quote.source;
        quoted.destination = quote.destination;
    }

    packet
}

#[test]
fn the_overlay_program_decides_as_the_oracle_does() {
    let programs = load(&tables());
    let oracle = gateway();

    for_all(any_packet(), |packet| {
        let frame_in = from_node(&packet.encode());
        match oracle.from_node(&parsed(&packet)) {
            Verdict::ToPeer(peer, forwarded) => {
                let run = programs.overlay(&frame_in);
                let expected = rewritten(&packet, &forwarded).encode();
                assert_eq!(run.verdict, REDIRECT);
                assert_eq!(run.frame, frame(peer_mac(peer), node_mac(), &expected));
            }
            Verdict::Drop(refusal) => {
                let reason = match refusal {
                    Refusal::Malformed => Counter::OverlayMalformed,
                    Refusal::SourceRouted => Counter::OverlaySourceRouted,
                    Refusal::UnknownSource => Counter::OverlayUnknownSource,
                    Refusal::UnknownDestination => Counter::OverlayUnknownDestination,
                    Refusal::Quote => Counter::OverlayQuoteRefused,
                    Refusal::Transit | Refusal::TtlExceeded => panic!("{refusal:?} of a node"),
                };
                programs.assert_refused(|programs| programs.overlay(&frame_in), reason);
            }
            Verdict::ToNode(_) => panic!("the oracle sends a node's packet to a node"),
        }
    });
}

#[test]
fn the_tap_program_decides_as_the_oracle_does() {
    let programs = load(&tables());
    let oracle = gateway();

    for_all((1..3u16, any_packet()), |(from, packet)| {
        let frame_in = from_peer(from, &packet.encode());
        match oracle.from_peer(from, &parsed(&packet)) {
            Verdict::ToNode(forwarded) => {
                let run = programs.tap(&frame_in);
                let expected = rewritten(&packet, &forwarded).encode();
                assert_eq!(run.verdict, REDIRECT);
                assert_eq!(run.frame, from_peer(from, &expected));
            }
            Verdict::ToPeer(peer, forwarded) => {
                let run = programs.tap(&frame_in);
                assert_eq!(run.verdict, REDIRECT);
                let expected = rewritten(&packet, &forwarded).encode();
                let expected = frame(peer_mac(peer), peer_mac(from), &expected);
                assert_eq!(run.frame, expected);
            }
            Verdict::Drop(refusal) => {
                let reason = match refusal {
                    Refusal::Malformed => Counter::TapMalformed,
                    Refusal::SourceRouted => Counter::TapSourceRouted,
                    Refusal::UnknownSource => Counter::TapUnknownSource,
                    Refusal::UnknownDestination => Counter::TapUnknownDestination,
                    Refusal::Transit => Counter::TapTransitRefused,
                    Refusal::TtlExceeded => Counter::TapTtlExceeded,
                    Refusal::Quote => Counter::TapQuoteRefused,
                };
                programs.assert_refused(|programs| programs.tap(&frame_in), reason);
            }
        }
    });
}

/// A frame may be longer than the IPv4 packet in it, because Ethernet pads short frames.
#[test]
fn bytes_beyond_the_total_length_decide_nothing_and_do_not_change() {
    let programs = load(&tables());
    let oracle = gateway();

    for_all(
        (1..3u16, any_packet(), 0..48usize),
        |(from, packet, len)| {
            let mut bytes = packet.encode();
            let total = bytes.len().min(20 + packet.options.len() + len);
            bytes[2..4].copy_from_slice(&u16::try_from(total).unwrap().to_be_bytes());
            let parsed = rewrite::Packet::parse(&bytes);
            let by_node = parsed.as_ref().map(|it| oracle.from_node(it));
            let by_peer = parsed.as_ref().map(|it| oracle.from_peer(from, it));

            for (run, expected) in [
                (programs.overlay(&from_node(&bytes)), by_node),
                (programs.tap(&from_peer(from, &bytes)), by_peer),
            ] {
                let verdict = match expected {
                    Ok(Verdict::ToPeer(..) | Verdict::ToNode(_)) => REDIRECT,
                    Ok(Verdict::Drop(_)) | Err(_) => DROP,
                };
                assert_eq!(run.verdict, verdict, "{expected:?}");
                assert_eq!(run.frame[14 + total..], bytes[total..]);
            }
        },
    );
}
