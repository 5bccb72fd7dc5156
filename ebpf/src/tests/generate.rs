//! Strategies that generate packets for property tests.

use super::packet::{Body, DCCP, Packet, SYN, UDP_LITE};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// Protocols whose checksums do not cover the addresses: IGMP, IP in IP, GRE, ESP, SCTP.
const OTHERS: [u8; 5] = [2, 4, 47, 50, 132];

/// ICMP errors that quote a packet: destination unreachable, source quench, time exceeded and
/// parameter problem.
const ERRORS: [u8; 4] = [3, 4, 11, 12];

/// ICMP messages that quote no packet: echo reply, echo request, timestamp and timestamp reply.
const MESSAGES: [u8; 4] = [0, 8, 13, 14];

/// Generates packets other than ICMP errors between the given addresses.
pub(super) fn packets(
    source: impl Strategy<Value = Ipv4Addr>,
    destination: impl Strategy<Value = Ipv4Addr>,
) -> impl Strategy<Value = Packet> {
    (source, destination, header(), body()).prop_map(|(source, destination, header, body)| {
        let (ttl, id, options) = header;
        Packet {
            source,
            destination,
            ttl,
            id,
            options,
            body,
        }
    })
}

/// Number of quoted bytes of a TCP header that include only the first byte of its checksum.
const HALF_CHECKSUM: usize = 17;

/// Generates ICMP errors that quote the IPv4 header and at least eight more bytes, as in RFC 792.
///
/// No quoted packet ends in the middle of the TCP checksum, because the programs do not update a
/// checksum of which only one byte is quoted.
pub(super) fn errors(
    source: impl Strategy<Value = Ipv4Addr>,
    destination: impl Strategy<Value = Ipv4Addr>,
    quoted: impl Strategy<Value = Packet>,
) -> impl Strategy<Value = Packet> {
    let kind = (prop::sample::select(&ERRORS), 0..16u8);
    let beyond = (8..200usize).prop_filter("half a checksum", |beyond| *beyond != HALF_CHECKSUM);
    (source, destination, header(), kind, quoted, beyond).prop_map(
        |(source, destination, (ttl, id, options), (kind, code), quoted, beyond)| Packet {
            source,
            destination,
            ttl,
            id,
            options,
            body: Body::Error {
                kind,
                code,
                keep: 20 + quoted.options.len() + beyond,
                quoted: Box::new(quoted),
            },
        },
    )
}

/// Generates addresses of a network.
pub(super) fn address(net: &str) -> impl Strategy<Value = Ipv4Addr> + use<> {
    let net: ipnet::Ipv4Net = net.parse().unwrap();
    any::<u32>().prop_map(move |bits| {
        let host = bits & net.hostmask().to_bits();
        Ipv4Addr::from_bits(net.network().to_bits() | host)
    })
}

/// Generates lengths of a fragment's payload in bytes.
///
/// A length is a multiple of eight, and at least 32 bytes. The first fragment of an ICMP error
/// therefore contains the ICMP header and the quoted IPv4 header.
pub(super) fn fragment_len() -> impl Strategy<Value = usize> {
    (4..20usize).prop_map(|eights| eights * 8)
}

fn header() -> impl Strategy<Value = (u8, u16, Vec<u8>)> {
    let options = prop_oneof![3 => Just(Vec::new()), 1 => options()];
    (2..=255u8, any::<u16>(), options)
}

/// Generates well-formed IPv4 options without a source route, padded to 32-bit words.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]), // no operation
        // Record route, timestamp, stream id, router alert and an unassigned option.
        (
            prop::sample::select(&[7u8, 0x44, 0x88, 0x94, 0x5e]),
            vec(any::<u8>(), 0..12)
        )
            .prop_map(|(kind, data)| {
                let len = u8::try_from(data.len() + 2).unwrap();
                [vec![kind, len], data].concat()
            }),
    ];
    vec(option, 0..4).prop_map(|options| {
        let mut list = Vec::new();
        for option in options {
            if list.len() + option.len() <= 40 {
                list.extend(option);
            }
        }
        list.resize(list.len().next_multiple_of(4), 0);
        list
    })
}

fn body() -> impl Strategy<Value = Body> {
    let bytes = || vec(any::<u8>(), 0..200);
    // The programs may change the MSS option of a SYN segment. The module `mss` tests such
    // segments.
    let flags = any::<u8>().prop_map(|flags| flags & !SYN);
    prop_oneof![
        4 => (any::<[u16; 2]>(), flags, words(10), bytes()).prop_map(
            |(ports, flags, options, payload)| Body::Tcp { ports, flags, options, payload }
        ),
        4 => (any::<[u16; 2]>(), any::<bool>(), bytes()).prop_map(
            |(ports, has_checksum, payload)| Body::Udp { ports, has_checksum, payload }
        ),
        1 => (prop::sample::select(&[DCCP, UDP_LITE]), bytes())
            .prop_map(|(protocol, payload)| Body::LikeUdp { protocol, payload }),
        2 => (prop::sample::select(&MESSAGES), bytes())
            .prop_map(|(kind, payload)| Body::Echo { kind, payload }),
        1 => (prop::sample::select(&OTHERS), bytes())
            .prop_map(|(protocol, payload)| Body::Other { protocol, payload }),
    ]
}

/// Generates up to `max` words of four bytes.
fn words(max: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<[u8; 4]>(), 0..=max).prop_map(|words| words.concat())
}
