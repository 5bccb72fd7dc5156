//! Three clusters with the same addresses: pods 10.244.0.0/16, external 10.70.0.0/16. Each sees the next
//! one as 10.50, 10.51 and the one after as 10.60, 10.61.

use super::*;
use proptest::prelude::*;

const NEXT: u16 = 1;
const AFTER_NEXT: u16 = 2;

#[test]
fn a_packet_is_swapped_once_at_each_end() {
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
fn a_sender_must_be_where_its_source_belongs() {
    let refused = Verdict::Drop(Refusal::UnknownSource);

    assert_eq!(
        gateway().from_node(&packet("192.0.2.1", "10.50.1.10")),
        refused
    );
    assert_eq!(
        gateway().from_peer(NEXT, &packet("192.0.2.1", "10.244.1.10")),
        refused
    );
    // What a peer's pod looks like here is no address that the peer itself may use.
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
fn a_destination_must_lead_somewhere() {
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
fn a_peer_does_not_reach_another_through_here() {
    let refused = Verdict::Drop(Refusal::Transit);

    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.244.1.10", "10.60.1.10")),
        refused
    );
    // Neither does it by the address of a mapped pod, as long as its own pod has none.
    assert_eq!(
        gateway().from_peer(NEXT, &packet("10.244.9.9", "10.70.0.6")),
        refused
    );
}

#[test]
fn mapped_pods_of_two_peers_talk_through_here() {
    let there = gateway().from_peer(NEXT, &packet("10.244.1.10", "10.70.0.6"));
    assert_eq!(
        there,
        Verdict::ToPeer(AFTER_NEXT, packet("10.70.0.5", "10.244.1.10"))
    );

    let back = gateway().from_peer(AFTER_NEXT, &packet("10.244.1.10", "10.70.0.5"));
    assert_eq!(
        back,
        Verdict::ToPeer(NEXT, packet("10.70.0.6", "10.244.1.10"))
    );
}

#[test]
fn an_error_between_mapped_pods_names_them_as_the_sender_does() {
    let error = quoting(
        packet("10.244.1.10", "10.70.0.5"),
        "10.70.0.5",
        "10.244.1.10",
    );
    let router = quoting(
        packet("169.254.18.2", "10.70.0.5"),
        "10.70.0.5",
        "10.244.1.10",
    );
    let expected = quoting(
        packet("10.70.0.6", "10.244.1.10"),
        "10.244.1.10",
        "10.70.0.6",
    );

    assert_eq!(
        gateway().from_peer(AFTER_NEXT, &error),
        Verdict::ToPeer(NEXT, expected)
    );
    assert_eq!(
        gateway().from_peer(AFTER_NEXT, &router),
        Verdict::ToPeer(NEXT, expected)
    );
}

#[test]
fn an_error_of_a_router_passes_if_it_is_about_a_packet_of_ours() {
    let error = |source, quoted_source, quoted_destination| {
        let packet = quoting(
            packet(source, "10.244.1.10"),
            quoted_source,
            quoted_destination,
        );
        gateway().from_peer(NEXT, &packet)
    };

    assert_eq!(
        error("169.254.18.1", "10.244.1.10", "10.244.7.7"),
        Verdict::ToNode(quoting(
            packet("10.51.0.0", "10.244.1.10"),
            "10.244.1.10",
            "10.50.7.7"
        ))
    );
    let refused = Verdict::Drop(Refusal::UnknownSource);
    assert_eq!(error("169.254.18.1", "10.244.1.11", "10.244.7.7"), refused);
    assert_eq!(error("169.254.18.1", "10.244.1.10", "192.0.2.1"), refused);
}

proptest! {
    /// From cluster to cluster and back: the answer comes from where the question went.
    #[test]
    fn an_answer_retraces_the_question(a: u16, b: u16) {
        let (here, there) = (in_pods(a), seen_next(b));
        let question = Packet { header: Header { source: here, destination: there }, quote: None };

        let asked = pass(NEXT, &question);
        let answer = Packet { header: asked.header.turned(), quote: None };
        let answered = pass(AFTER_NEXT, &answer);

        prop_assert_eq!(asked.header.destination, in_pods(b));
        prop_assert_eq!(answered.header, question.header.turned());
    }

    /// What an error quotes is what was sent.
    #[test]
    fn an_error_quotes_the_question(a: u16, b: u16) {
        let question = Packet {
            header: Header { source: in_pods(a), destination: seen_next(b) },
            quote: None,
        };

        let asked = pass(NEXT, &question);
        let error = Packet { header: asked.header.turned(), quote: Some(asked.header) };
        let told = pass(AFTER_NEXT, &error);

        prop_assert_eq!(told.header, question.header.turned());
        prop_assert_eq!(told.quote, Some(question.header));
    }

    /// A packet to an address outside of every prefix goes nowhere, whatever its source.
    #[test]
    fn nothing_is_swapped_outside_of_the_prefixes(source: u32, destination: u32, peer in 0..4u16) {
        let (source, destination) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        let packet = Packet { header: Header { source, destination }, quote: None };
        let gateway = gateway();

        if let Verdict::ToPeer(_, swapped) = gateway.from_node(&packet) {
            prop_assert_eq!(swapped.header.source, source);
            prop_assert!(gateway.peers.values().any(|peer| peer.original(destination).is_some()));
        }
        if let Verdict::ToNode(swapped) = gateway.from_peer(peer, &packet) {
            prop_assert_eq!(swapped.header.destination, destination);
            prop_assert!(gateway.peers[&peer].seen(source).is_some());
        }
    }
}

/// Sends a packet through the tunnel to a peer, which has the same tables; the sender is the peer's other
/// neighbour.
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
    }
}

impl Header {
    fn turned(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
        }
    }
}

fn packet(source: &str, destination: &str) -> Packet {
    Packet {
        header: Header {
            source: addr(source),
            destination: addr(destination),
        },
        quote: None,
    }
}

fn quoting(packet: Packet, source: &str, destination: &str) -> Packet {
    Packet {
        quote: Some(self::packet(source, destination).header),
        ..packet
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
