//! Tests with a ring of three clusters, which are peers of each other.
//!
//! All clusters have the same pod CIDR, 10.244.0.0/16, and the same external CIDR, 10.70.0.0/16.
//! Each cluster remaps the CIDRs of its peers:
//!
//! | peer | pod CIDR | external CIDR |
//! |---|---|---|
//! | next cluster in the ring | 10.50.0.0/16 | 10.51.0.0/16 |
//! | cluster after next | 10.60.0.0/16 | 10.61.0.0/16 |

use super::*;
use proptest::prelude::*;

const NEXT: u16 = 1;
const AFTER_NEXT: u16 = 2;

const UNREACHABLE: u8 = 3;

#[test]
fn a_packet_is_remapped_once_at_each_end() {
    let sent = packet("10.244.1.10", "10.50.1.10");

    let tunnel = gateway().from_node(&sent);
    assert_eq!(
        tunnel,
        Verdict::ToPeer(NEXT, packet("10.244.1.10", "10.244.1.10"))
    );

    let received = gateway().from_peer(AFTER_NEXT, &packet("10.244.1.10", "10.244.1.10"));
    assert_eq!(
        received,
        Verdict::ToNode(packet("10.60.1.10", "10.244.1.10"))
    );
}

#[test]
fn a_source_must_belong_to_its_sender() {
    let refused = Verdict::Drop(Refusal::UnknownSource);

    assert_eq!(
        gateway().from_node(&packet("192.0.2.1", "10.50.1.10")),
        refused
    );
    assert_eq!(
        gateway().from_peer(NEXT, &packet("192.0.2.1", "10.244.1.10")),
        refused
    );
    // The source is the peer's remapped address, but packets from the peer have original addresses.
    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.50.1.10", "10.244.1.10")),
        refused
    );
    assert_eq!(
        gateway().from_peer(9, &packet("10.244.1.10", "10.244.1.10")),
        refused
    );
}

#[test]
fn an_unknown_destination_is_refused() {
    let refused = Verdict::Drop(Refusal::UnknownDestination);

    assert_eq!(
        gateway().from_node(&packet("10.244.1.10", "192.0.2.1")),
        refused
    );
    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.244.1.10", "192.0.2.1")),
        refused
    );
}

#[test]
fn a_packet_between_peers_without_ip_objects_is_dropped() {
    let refused = Verdict::Drop(Refusal::Transit);

    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.244.1.10", "10.60.1.10")),
        refused
    );
    // The destination is the address of an IP object, but no IP object represents the source.
    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.244.9.9", "10.70.0.6")),
        refused
    );
}

#[test]
fn pods_of_two_peers_communicate_through_ip_objects() {
    let request = gateway().from_peer(NEXT, &packet("10.244.1.10", "10.70.0.6"));
    assert_eq!(
        request,
        Verdict::ToPeer(AFTER_NEXT, transited("10.70.0.5", "10.244.1.10"))
    );

    let reply = gateway().from_peer(AFTER_NEXT, &packet("10.244.1.10", "10.70.0.5"));
    assert_eq!(
        reply,
        Verdict::ToPeer(NEXT, transited("10.70.0.6", "10.244.1.10"))
    );
}

#[test]
fn a_packet_between_peers_needs_a_ttl_above_one() {
    for (ttl, verdict) in [
        (0, Verdict::Drop(Refusal::TtlExceeded)),
        (1, Verdict::Drop(Refusal::TtlExceeded)),
        (
            2,
            Verdict::ToPeer(
                AFTER_NEXT,
                Packet {
                    ttl: 1,
                    ..packet("10.70.0.5", "10.244.1.10")
                },
            ),
        ),
    ] {
        let sent = Packet {
            ttl,
            ..packet("10.244.1.10", "10.70.0.6")
        };
        assert_eq!(gateway().from_peer(NEXT, &sent), verdict, "{ttl}");
    }
}

#[test]
fn an_error_between_mapped_pods_quotes_the_packet_as_it_was_sent() {
    let error = |source| {
        quoting(
            packet(source, "10.70.0.5"),
            header("10.70.0.5", "10.244.1.10"),
        )
    };
    let expected = quoting(
        transited("10.70.0.6", "10.244.1.10"),
        header("10.244.1.10", "10.70.0.6"),
    );

    for source in ["10.244.1.10", "169.254.18.2"] {
        assert_eq!(
            gateway().from_peer(AFTER_NEXT, &error(source)),
            Verdict::ToPeer(NEXT, expected.clone())
        );
    }
}

#[test]
fn an_error_of_a_router_passes_if_it_quotes_a_packet_of_its_receiver() {
    let error = quoting(
        packet("169.254.18.1", "10.244.1.10"),
        header("10.244.1.10", "10.244.7.7"),
    );

    assert_eq!(
        gateway().from_peer(NEXT, &error),
        Verdict::ToNode(quoting(
            packet("10.51.0.0", "10.244.1.10"),
            header("10.244.1.10", "10.50.7.7")
        ))
    );
}

#[test]
fn an_error_of_a_peer_about_a_packet_that_it_did_not_get_is_refused() {
    // Senders of the error: a pod without an IP object, a pod with an IP object, and a router.
    for source in ["10.244.7.7", "10.244.1.10", "169.254.18.1"] {
        for (receiver, quote) in [
            // The receiver of the error did not send the quoted packet.
            ("10.244.1.10", header("10.244.1.11", "10.244.7.7")),
            // The destination of the quoted packet is on the internet, in another peer, or a node.
            ("10.244.1.10", header("10.244.1.10", "192.0.2.1")),
            ("10.244.1.10", header("10.244.1.10", "10.60.7.7")),
            ("10.244.1.10", header("10.244.1.10", "172.18.0.2")),
            // The quoted destination is a remapped address, but the peer gets original addresses.
            ("10.244.1.10", header("10.244.1.10", "10.50.7.7")),
            // Between two peers: the receiver of the error did not send the quoted packet.
            ("10.70.0.6", header("10.70.0.7", "10.244.1.10")),
            // Between two peers: no IP object represents the quoted destination.
            ("10.70.0.6", header("10.70.0.6", "10.244.7.7")),
        ] {
            let error = quoting(packet(source, receiver), quote);
            assert_eq!(
                gateway().from_peer(NEXT, &error),
                Verdict::Drop(Refusal::Quote),
                "{error:?}"
            );
        }
    }
}

#[test]
fn an_error_of_a_node_about_a_packet_that_it_did_not_get_is_refused() {
    for quote in [
        // The receiver of the error did not send the quoted packet.
        header("10.50.1.11", "10.244.1.10"),
        header("10.60.1.10", "10.244.1.10"),
        // The destination of the quoted packet is on the internet, or a pod of another peer.
        header("10.50.1.10", "192.0.2.1"),
        header("10.50.1.10", "10.70.0.6"),
    ] {
        let error = quoting(packet("10.244.1.10", "10.50.1.10"), quote);
        assert_eq!(
            gateway().from_node(&error),
            Verdict::Drop(Refusal::Quote),
            "{error:?}"
        );
    }
}

#[test]
fn a_redirect_and_an_error_without_a_quote_are_refused() {
    let error = |kind, quote| {
        let mut error = packet("10.244.1.10", "10.244.1.10");
        error.error = Some(IcmpError { kind, quote });
        gateway().from_peer(NEXT, &error)
    };

    let quote = header("10.244.1.10", "10.244.1.10");
    assert_eq!(error(REDIRECT, Some(quote)), Verdict::Drop(Refusal::Quote));
    assert_eq!(error(UNREACHABLE, None), Verdict::Drop(Refusal::Malformed));
}

#[test]
fn malformed_options_and_source_routes_are_refused() {
    let verdict = |options: &[u8]| {
        let mut sent = packet("10.244.1.10", "10.50.1.10");
        sent.options = options.to_vec();
        match gateway().from_node(&sent) {
            Verdict::Drop(refusal) => Some(refusal),
            Verdict::ToPeer(..) | Verdict::ToNode(_) => None,
        }
    };

    // A timestamp, two no-operation options and the end of the list. The gateway ignores the source
    // route after the end.
    assert_eq!(verdict(&[0x44, 4, 5, 0, 1, 1, 0, 0x83]), None);
    for kind in [0x83, 0x89] {
        let routed = Some(Refusal::SourceRouted);
        assert_eq!(verdict(&[kind, 7, 4, 192, 0, 2, 1, 0]), routed);
        assert_eq!(verdict(&[1, 7, 3, 4, 1, 1, 1, kind]), routed);
    }
    for malformed in [&[7, 0, 4, 0], &[7, 1, 4, 0], &[7, 5, 4, 0], &[1, 1, 1, 7]] {
        assert_eq!(verdict(malformed), Some(Refusal::Malformed));
    }
}

proptest! {
    #[test]
    fn a_reply_comes_from_the_destination_of_its_request(a: u16, b: u16) {
        let (here, there) = (in_pods(a), seen_next(b));
        let request = Packet::plain(Header { source: here, destination: there });

        let received = pass(NEXT, &request);
        let reply = pass(AFTER_NEXT, &Packet::plain(received.header.reversed()));

        prop_assert_eq!(received.header.destination, in_pods(b));
        prop_assert_eq!(reply.header, request.header.reversed());
    }

    #[test]
    fn an_error_quotes_the_packet_as_it_was_sent(a: u16, b: u16) {
        let request = Packet::plain(Header { source: in_pods(a), destination: seen_next(b) });

        let received = pass(NEXT, &request);
        let error = quoting(Packet::plain(received.header.reversed()), received.header);
        let error = pass(AFTER_NEXT, &error);

        prop_assert_eq!(error.header, request.header.reversed());
        prop_assert_eq!(error.error.unwrap().quote, Some(request.header));
    }

    #[test]
    fn no_address_outside_the_prefixes_is_remapped(source: u32, destination: u32, peer in 0..4u16) {
        let (source, destination) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        let packet = Packet::plain(Header { source, destination });
        let gateway = gateway();

        if let Verdict::ToPeer(_, remapped) = gateway.from_node(&packet) {
            prop_assert_eq!(remapped.header.source, source);
            prop_assert!(gateway.peers.values().any(|peer| peer.original(destination).is_some()));
        }
        if let Verdict::ToNode(remapped) = gateway.from_peer(peer, &packet) {
            prop_assert_eq!(remapped.header.destination, destination);
            prop_assert!(gateway.peers[&peer].seen(source).is_some());
        }
    }

    #[test]
    fn parsing_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..100), is_plausible: bool) {
        let mut bytes = bytes;
        if is_plausible && bytes.len() >= 20 {
            let len = u8::try_from(bytes.len()).unwrap();
            let version_ihl = 0x45 + (bytes[0] & 3);
            bytes[..4].copy_from_slice(&[version_ihl, 0, 0, len]);
        }

        let _ = Packet::parse(&bytes);
    }
}

#[test]
fn a_parsed_packet_has_addresses_options_and_the_quote() {
    let mut bytes = vec![0x46, 0, 0, 52, 0, 0, 0, 0, 7, ICMP, 0, 0];
    bytes.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 1, 1, 0]);
    bytes.extend([UNREACHABLE, 1, 0, 0, 0, 0, 0, 0]);
    bytes.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 9, 17, 0, 0]);
    bytes.extend([10, 0, 0, 2, 10, 0, 0, 3]);
    let expected = Packet {
        ttl: 7,
        options: vec![1, 1, 1, 0],
        ..quoting(
            packet("10.0.0.1", "10.0.0.2"),
            header("10.0.0.2", "10.0.0.3"),
        )
    };
    assert_eq!(Packet::parse(&bytes), Ok(expected.clone()));

    // A fragment other than the first must not overlap the ICMP header and the quoted header, which
    // together have 28 bytes. The unit of the offset is 8 bytes.
    for (offset, parsed) in [
        (3, Err(Malformed)),
        (
            4,
            Ok(Packet {
                error: None,
                ..expected
            }),
        ),
    ] {
        bytes[7] = offset;
        assert_eq!(Packet::parse(&bytes), parsed);
    }
}

#[test]
fn bytes_beyond_the_total_length_are_no_part_of_the_packet() {
    // The IP protocol, and the minimum payload length in bytes.
    for (protocol, required) in [(ICMP, 8), (6, 18), (17, 8), (33, 8), (136, 8), (47, 0)] {
        for len in 0..24 {
            let mut bytes = vec![0x45, 0, 0, 20 + len, 0, 0, 0, 0, 64, protocol, 0, 0];
            bytes.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            bytes.resize(20 + 40, 0x45);

            let parsed = Packet::parse(&bytes);
            if len < required {
                assert_eq!(parsed, Err(Malformed), "protocol {protocol}, {len} bytes");
            } else {
                let expected = packet("10.0.0.1", "10.0.0.2");
                assert_eq!(parsed, Ok(expected), "protocol {protocol}, {len} bytes");
            }
        }
    }
}

const ICMP: u8 = 1;

/// Sends a packet through the tunnel to `peer`, and returns the packet that the peer's gateway
/// forwards.
///
/// All gateways have the same tables. If `peer` is `NEXT`, the peer's gateway has the sender as
/// `AFTER_NEXT`, and vice versa.
fn pass(peer: u16, packet: &Packet) -> Packet {
    let Verdict::ToPeer(to, tunnelled) = gateway().from_node(packet) else {
        panic!("{packet:?} was not sent");
    };
    assert_eq!(to, peer);
    let sender = NEXT + AFTER_NEXT - peer;
    let Verdict::ToNode(received) = gateway().from_peer(sender, &tunnelled) else {
        panic!("{tunnelled:?} was not received");
    };

    received
}

fn gateway() -> Gateway {
    let peer = |pods: &str, external: &str| Peer {
        remaps: vec![
            Remap::new(net("10.244.0.0/16"), net(pods)).unwrap(),
            Remap::new(net("10.70.0.0/16"), net(external)).unwrap(),
        ],
        unknown_source: Some(net(external).network()),
    };
    let pod = |peer| RemotePod {
        peer,
        original: addr("10.244.1.10"),
    };

    Gateway {
        peers: BTreeMap::from([
            (NEXT, peer("10.50.0.0/16", "10.51.0.0/16")),
            (AFTER_NEXT, peer("10.60.0.0/16", "10.61.0.0/16")),
        ]),
        sources: ["10.244.0.0/16", "10.70.0.0/16"].map(net).to_vec(),
        local: ["10.244.0.0/16", "10.70.0.1/32"].map(net).to_vec(),
        mapped_pods: BTreeMap::from([
            (addr("10.70.0.5"), pod(NEXT)),
            (addr("10.70.0.6"), pod(AFTER_NEXT)),
        ]),
        services: BTreeMap::from([(addr("10.70.0.7"), addr("10.96.0.1"))]),
    }
}

impl Header {
    fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

fn packet(source: &str, destination: &str) -> Packet {
    Packet::plain(header(source, destination))
}

/// Returns a packet with the TTL that it has after a gateway forwarded it between two peers.
fn transited(source: &str, destination: &str) -> Packet {
    let mut packet = packet(source, destination);
    packet.ttl -= 1;
    packet
}

fn quoting(packet: Packet, quote: Header) -> Packet {
    Packet {
        error: Some(IcmpError {
            kind: UNREACHABLE,
            quote: Some(quote),
        }),
        ..packet
    }
}

fn header(source: &str, destination: &str) -> Header {
    Header {
        source: addr(source),
        destination: addr(destination),
    }
}

fn in_pods(host: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(net("10.244.0.0/16").addr().to_bits() | u32::from(host))
}

fn seen_next(host: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(net("10.50.0.0/16").addr().to_bits() | u32::from(host))
}

fn net(text: &str) -> Ipv4Net {
    text.parse().unwrap()
}

fn addr(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}
