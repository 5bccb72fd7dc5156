//! Tests that the programs lower the maximum segment size (MSS) that a TCP handshake announces.

use super::fixture::{MSS_1, MSS_2, STANDS_FOR_2, tables};
use super::overlay::{for_peer, from_node};
use super::packet::{Body, Packet, SYN};
use super::tap::from_peer;
use super::{for_all, load};
use ebpf_common::counter::Counter;
use proptest::collection::vec;
use proptest::prelude::*;

/// Generates one TCP option other than the MSS.
fn option() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![1]),                                   // no operation
        Just(vec![4, 2]),                                // SACK permitted
        any::<u8>().prop_map(|shift| vec![3, 3, shift]), // window scale
        any::<[u8; 8]>().prop_map(|stamps| [vec![8, 10], stamps.to_vec()].concat()),
        (30..=253u8, vec(any::<u8>(), 0..6)).prop_map(|(kind, data)| {
            let len = u8::try_from(data.len() + 2).unwrap();
            [vec![kind, len], data].concat()
        }),
    ]
}

/// Generates TCP options with an MSS option, and the offset of the announced MSS in them.
fn options() -> impl Strategy<Value = (Vec<u8>, usize)> {
    (vec(option(), 0..4), any::<u16>(), vec(option(), 0..2)).prop_map(|(before, mss, after)| {
        let mut options = before.concat();
        options.truncate(36);
        if before.concat().len() > 36 {
            options = vec![1; 35];
        }
        let at = options.len() + 2;
        options.extend([2, 4]);
        options.extend(mss.to_be_bytes());
        let after = after.concat();
        if options.len() + after.len() <= 40 {
            options.extend(after);
        }
        options.resize(options.len().next_multiple_of(4), 0);
        (options, at)
    })
}

fn syn(source: &str, destination: &str, options: Vec<u8>) -> Packet {
    let body = Body::Tcp {
        ports: [40000, 80],
        flags: SYN,
        options,
        payload: Vec::new(),
    };
    Packet::new(source, destination, body)
}

/// Returns `options` with the announced MSS at offset `at` lowered to `limit`.
fn limited(mut options: Vec<u8>, at: usize, limit: u16) -> Vec<u8> {
    let announced = u16::from_be_bytes([options[at], options[at + 1]]);
    options[at..at + 2].copy_from_slice(&announced.min(limit).to_be_bytes());
    options
}

#[test]
fn a_handshake_announces_at_most_the_tunnels_segment_size_in_both_directions() {
    let programs = load(&tables());

    for_all(
        (options(), any::<bool>()),
        |((options, at), has_ip_options)| {
            let expected = limited(options.clone(), at, MSS_1);
            let packet = |source, destination, options| {
                let mut packet = syn(source, destination, options);
                packet.options = vec![1; if has_ip_options { 8 } else { 0 }];
                packet.encode()
            };

            let out = packet("10.244.1.10", "10.245.1.10", options.clone());
            let out = programs.overlay(&from_node(&out));
            let back = packet("10.244.1.10", "10.244.2.10", options);
            let back = programs.tap(&from_peer(1, &back));

            let out_expected = packet("10.244.1.10", "10.244.1.10", expected.clone());
            let back_expected = packet("10.245.1.10", "10.244.2.10", expected);
            assert_eq!(out.frame, for_peer(1, &out_expected));
            assert_eq!(back.frame, from_peer(1, &back_expected));
        },
    );
    assert!(programs.count(Counter::MssClamped) > 0);
}

#[test]
fn a_handshake_between_peers_announces_the_lower_size_of_both_tunnels() {
    let programs = load(&tables());
    let packet = syn("10.244.5.5", STANDS_FOR_2, vec![2, 4, 0x05, 0xb4]).encode();

    let run = programs.tap(&from_peer(1, &packet));

    let announced = u16::from_be_bytes([run.frame[56], run.frame[57]]);
    assert_eq!(announced, MSS_1.min(MSS_2));
}

#[test]
fn malformed_options_stay_unchanged() {
    let programs = load(&tables());
    let malformed = [
        vec![0, 2, 4, 0x05, 0xb4, 0, 0, 0], // The MSS option follows the end of the list.
        vec![9, 0, 2, 4, 0x05, 0xb4, 1, 1], // The first option has the length zero.
        vec![9, 1, 2, 4, 0x05, 0xb4, 1, 1], // The first option has the length one.
        vec![2, 3, 0x05, 0xb4],             // The MSS option has a wrong length.
        vec![1, 1, 2, 4],                   // The MSS option is truncated.
        vec![9, 200, 2, 4, 0x05, 0xb4, 1, 1], // The first option is longer than the list.
    ];

    for options in malformed {
        let packet = syn("10.244.1.10", "10.245.1.10", options.clone());
        let run = programs.overlay(&from_node(&packet.encode()));

        let expected = syn("10.244.1.10", "10.244.1.10", options);
        assert_eq!(run.frame, for_peer(1, &expected.encode()));
    }
    assert_eq!(programs.count(Counter::MssClamped), 0);
}

#[test]
fn a_payload_that_looks_like_an_option_stays_unchanged() {
    let programs = load(&tables());
    let packet = |destination| {
        let mut packet = syn("10.244.1.10", destination, vec![1; 4]);
        if let Body::Tcp { payload, .. } = &mut packet.body {
            *payload = vec![2, 4, 0xff, 0xff, 0, 0, 0, 0];
        }
        packet.encode()
    };

    let run = programs.overlay(&from_node(&packet("10.245.1.10")));

    assert_eq!(run.frame, for_peer(1, &packet("10.244.1.10")));
}

#[test]
fn segments_after_the_handshake_stay_unchanged() {
    let programs = load(&tables());
    let packet = |destination| {
        let mut packet = syn("10.244.1.10", destination, vec![2, 4, 0xff, 0xff]);
        if let Body::Tcp { flags, .. } = &mut packet.body {
            *flags = 0x10;
        }
        packet.encode()
    };

    let run = programs.overlay(&from_node(&packet("10.245.1.10")));

    assert_eq!(run.frame, for_peer(1, &packet("10.244.1.10")));
}
