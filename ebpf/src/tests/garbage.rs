//! Tests that the programs drop random and damaged packets, or forward them to correct addresses.

use super::fixture::tables;
use super::generate::{address, packets};
use super::overlay::from_node;
use super::tap::from_peer;
use super::{DROP, REDIRECT, for_all, load};
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn random_bytes_are_dropped() {
    let programs = load(&tables());

    for_all(vec(any::<u8>(), 14..300), |bytes| {
        for run in [programs.overlay(&bytes), programs.tap(&bytes)] {
            assert_eq!(run.verdict, DROP, "{run:?}");
            assert_eq!(run.frame.len(), bytes.len());
        }
    });
}

#[test]
fn random_packets_are_dropped_or_forwarded() {
    let programs = load(&tables());

    // The kernel rejects a test run whose packet has no complete IPv4 header.
    for_all(vec(any::<u8>(), 20..200), |bytes| {
        let run = programs.overlay(&from_node(&bytes));
        assert!([DROP, REDIRECT].contains(&run.verdict), "{run:?}");
        let run = programs.tap(&from_peer(1, &bytes));
        assert!([DROP, REDIRECT].contains(&run.verdict), "{run:?}");
    });
}

/// Replaces only a few bytes of valid packets, so that most packets keep a destination that is in
/// the tables.
#[test]
fn damaged_packets_are_dropped_or_leave_with_the_right_addresses() {
    let programs = load(&tables());
    let damage = vec((0..120usize, any::<u8>()), 1..6);
    let packets = packets(address("10.244.1.0/24"), address("10.245.0.0/16"));

    for_all(
        (packets, damage, any::<usize>()),
        |(packet, damage, cut)| {
            let mut bytes = packet.encode();
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(20 + cut % (bytes.len() - 19));

            let run = programs.overlay(&from_node(&bytes));

            assert_eq!(run.frame.len(), bytes.len() + 14);
            if run.verdict == REDIRECT {
                assert_eq!(run.frame[30..32], [10, 244], "a foreign destination");
                assert_eq!(run.frame[32..34], bytes[18..20]);
                assert_eq!(run.frame[26..30], bytes[12..16]);
            }
        },
    );
}

/// The programs read only the headers through packet pointers, so a long payload must not matter.
#[test]
fn a_long_packet_passes() {
    use super::packet::{Body, Packet};

    let programs = load(&tables());
    let packet = |destination| {
        let body = Body::Udp {
            ports: [1, 2],
            has_checksum: true,
            payload: vec![0x5a; 3000],
        };
        Packet::new("10.244.1.10", destination, body).encode()
    };

    let run = programs.overlay(&from_node(&packet("10.245.1.10")));

    assert_eq!(run.verdict, REDIRECT);
    assert_eq!(run.frame[14..], packet("10.244.1.10"));
}
