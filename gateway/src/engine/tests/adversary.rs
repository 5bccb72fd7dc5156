//! Tests that messages of malicious peers, unknown senders and faulty paths are dropped and
//! counted.

use super::*;
use proptest::prelude::*;

/// Sends one packet from the client and returns its datagram, which is not delivered.
fn sealed(network: &mut Network, packet: &[u8]) -> Datagram {
    let before = network.in_flight.len();
    network.packet(1, packet, 0);
    assert_eq!(network.in_flight.len(), before + 1);
    network.in_flight.pop_back().unwrap()
}

fn ready() -> Network {
    let mut network = Network::pair();
    network.run(ms(120));
    network
}

fn inject(network: &mut Network, from: SocketAddr, bytes: &[u8]) {
    network.receive(0, PortId::LISTEN, from, &mut bytes.to_vec());
}

#[test]
fn a_replayed_message_is_dropped() {
    let mut network = ready();
    let datagram = sealed(&mut network, &inner_packet(b"once"));

    for _ in 0..3 {
        inject(&mut network, datagram.from, &datagram.bytes);
    }

    assert_eq!(network.payloads(0), [b"once"]);
    assert_eq!(network.drops(0, Drop::Replayed), 2);
}

#[test]
fn a_replay_from_elsewhere_moves_no_endpoint() {
    let mut network = ready();
    let datagram = sealed(&mut network, &inner_packet(b"once"));
    inject(&mut network, datagram.from, &datagram.bytes);
    let before = network.peer(0).sessions[0].endpoint;

    inject(
        &mut network,
        "203.0.113.66:666".parse().unwrap(),
        &datagram.bytes,
    );

    assert_eq!(network.peer(0).sessions[0].endpoint, before);
}

#[test]
fn an_old_message_is_accepted_within_the_window_and_dropped_beyond() {
    let mut network = ready();
    let young = sealed(&mut network, &inner_packet(b"young"));
    let old = sealed(&mut network, &inner_packet(b"old"));
    inject(&mut network, young.from, &young.bytes);
    for _ in 0..2_000 {
        let datagram = sealed(&mut network, &inner_packet(b"x"));
        inject(&mut network, datagram.from, &datagram.bytes);
    }

    inject(&mut network, old.from, &old.bytes);

    assert_eq!(network.drops(0, Drop::Replayed), 1);
    assert!(!network.payloads(0).contains(&b"old".to_vec()));
}

#[test]
fn a_tampered_message_is_dropped_wherever_it_was_touched() {
    let mut network = ready();
    let datagram = sealed(&mut network, &inner_packet(b"payload"));

    for position in 0..datagram.bytes.len() {
        let mut bytes = datagram.bytes.clone();
        bytes[position] ^= 0x10;
        inject(&mut network, datagram.from, &bytes);
    }

    assert_eq!(network.payloads(0), Vec::<Vec<u8>>::new());
    assert!(network.drops(0, Drop::InvalidTag) > 30);
    assert!(
        network.drops(0, Drop::UnknownReceiver) >= 3,
        "changed index"
    );
    assert_eq!(network.drops(0, Drop::Malformed), 4, "changed type");
}

#[test]
fn a_truncated_message_is_dropped_at_every_length() {
    let mut network = ready();
    let datagram = sealed(&mut network, &inner_packet(b"payload"));

    for len in 0..datagram.bytes.len() {
        inject(&mut network, datagram.from, &datagram.bytes[..len]);
    }

    assert_eq!(network.payloads(0), Vec::<Vec<u8>>::new());
    assert_eq!(network.drops(0, Drop::Malformed), 32);
    let longer = datagram.bytes.len() as u64 - 32;
    assert_eq!(network.drops(0, Drop::InvalidTag), longer);
}

#[test]
fn a_message_for_an_unknown_receiver_is_dropped() {
    let mut network = ready();
    let mut bytes = sealed(&mut network, &inner_packet(b"x")).bytes;
    bytes[4..8].copy_from_slice(&0x1234_5678_u32.to_le_bytes());

    inject(&mut network, "203.0.113.66:666".parse().unwrap(), &bytes);

    assert_eq!(network.drops(0, Drop::UnknownReceiver), 1);
}

#[test]
fn the_longest_datagram_is_harmless() {
    let mut network = ready();
    let mut bytes = vec![0; 65_507];
    let index = sealed(&mut network, &inner_packet(b"x")).bytes[4..8].to_vec();
    bytes[0] = 4;
    bytes[4..8].copy_from_slice(&index);
    bytes[8..16].copy_from_slice(&(1_u64 << 40).to_le_bytes());

    inject(&mut network, "203.0.113.66:666".parse().unwrap(), &bytes);
    let (now, from) = (network.now, "203.0.113.66:666".parse().unwrap());
    let mut short = [0; 100];
    let engine = &mut network.hosts[0].engine;
    engine.handle_datagram(PortId::LISTEN, from, &mut bytes, &mut short, now);

    assert_eq!(network.drops(0, Drop::InvalidTag), 1);
    assert_eq!(network.drops(0, Drop::Oversized), 1);
}

#[test]
fn a_packet_that_does_not_fit_is_not_sealed() {
    let mut network = ready();
    let engine = &mut network.hosts[1].engine;
    let session = engine
        .select(PEER, 0, std::net::Ipv4Addr::UNSPECIFIED)
        .unwrap();

    assert_eq!(engine.seal(session, &[0; 100], &mut [0; 131]), None);
    assert!(engine.seal(session, &[0; 100], &mut [0; 132]).is_some());
    assert_eq!(engine.drops.get(Drop::Oversized), 1);
}

#[test]
fn a_counter_beyond_the_limit_of_a_key_is_refused() {
    let mut network = ready();
    let mut datagram = sealed(&mut network, &inner_packet(b"x"));

    for counter in [u64::MAX, u64::MAX - (1 << 13)] {
        datagram.bytes[8..16].copy_from_slice(&counter.to_le_bytes());
        inject(&mut network, datagram.from, &datagram.bytes);
    }

    assert_eq!(network.drops(0, Drop::CounterLimit), 2);
}

#[test]
fn a_source_outside_the_peers_prefixes_is_refused() {
    let mut network = ready();

    network.packet(1, &inner_packet_from([10, 245, 0, 1], b"spoofed"), 0);
    network.packet(1, &inner_packet_from([10, 244, 0, 1], b"honest"), 0);
    network.run(ms(20));

    assert_eq!(network.payloads(0), [b"honest"]);
    assert_eq!(network.drops(0, Drop::SourceNotAllowed), 1);
}

#[test]
fn packets_other_than_ipv4_are_refused_but_prove_that_the_peer_is_alive() {
    let mut network = ready();
    let mut ipv6 = [0; 40];
    ipv6[0] = 0x60;
    let mut lying = inner_packet(b"x");
    lying[2..4].copy_from_slice(&5_u16.to_be_bytes());

    for packet in [&ipv6[..], &lying, b"noise", &[0x45; 19]] {
        network.packet(1, packet, 0);
    }
    network.run(ms(20));

    assert_eq!(network.payloads(0), Vec::<Vec<u8>>::new());
    assert_eq!(network.drops(0, Drop::InnerNotIpv4), 1);
    assert_eq!(network.drops(0, Drop::InnerMalformed), 3);
    network.run(secs(2));
    assert!(network.reachable(0));
}

#[test]
fn a_message_to_another_port_of_ours_moves_no_port() {
    let mut network = ready();
    let port = network.peer(1).sessions[0].port;
    let before = network.in_flight.len();
    network.packet(0, &inner_packet(b"x"), 0);
    assert_eq!(network.in_flight.len(), before + 1);
    let mut datagram = network.in_flight.pop_back().unwrap();

    network.receive(1, PortId::LISTEN, datagram.from, &mut datagram.bytes);
    network.run(secs(1));
    assert_eq!(network.peer(1).sessions[0].port, port);
    network.set_peers(1, Vec::new());

    assert_eq!(network.hosts[1].ports.len(), 1, "closed with its session");
}

#[test]
fn a_replayed_initiation_removes_no_session() {
    let mut network = Network::pair();
    network.capture = Some(Vec::new());
    network.run(secs(1));
    let capture = network.capture.take().unwrap();
    let first = capture.iter().find(|d| d.bytes[0] == 1).unwrap().clone();
    let before = network.peer(0).sessions[0].endpoint;

    for _ in 0..50 {
        inject(
            &mut network,
            "203.0.113.66:666".parse().unwrap(),
            &first.bytes,
        );
    }
    network.run(secs(5));

    assert_eq!(network.drops(0, Drop::InvalidHandshake), 50);
    assert_eq!(network.peer(0).sessions.len(), 1);
    assert_eq!(network.peer(0).sessions[0].endpoint, before);
}

#[test]
fn a_replayed_initiation_of_a_forgotten_slot_is_refused() {
    let mut network = Network::pair();
    network.capture = Some(Vec::new());
    network.run(secs(1));
    let capture = network.capture.take().unwrap();
    let first = capture.iter().find(|d| d.bytes[0] == 1).unwrap().clone();
    let slot = network.peer(0).sessions[0].remote_slot;
    let address = network.address(0);
    network.restart(1, "client-0", vec![calling(&[address])]);
    network.run(secs(30));
    let slots: Vec<_> = network
        .peer(0)
        .sessions
        .iter()
        .map(|s| s.remote_slot)
        .collect();
    assert!(slots.len() == 1 && slots[0] != slot, "the slot was removed");

    inject(
        &mut network,
        "203.0.113.66:666".parse().unwrap(),
        &first.bytes,
    );

    assert_eq!(network.drops(0, Drop::InvalidHandshake), 1);
    assert_eq!(network.peer(0).sessions.len(), 1);
    assert!(
        !network.in_flight.iter().any(|d| d.to.port() == 666),
        "no reply"
    );
}

#[test]
fn after_a_restart_a_replayed_initiation_stays_unconfirmed() {
    let mut network = Network::pair();
    network.capture = Some(Vec::new());
    network.run(secs(1));
    let capture = network.capture.take().unwrap();
    let first = capture.iter().find(|d| d.bytes[0] == 1).unwrap().clone();
    network.restart(0, "server-0", vec![serving()]);

    inject(
        &mut network,
        "203.0.113.66:666".parse().unwrap(),
        &first.bytes,
    );
    network.packet(0, &inner_packet(b"secret"), 0);
    network.run(ms(100));

    let to_attacker = |d: &&Datagram| d.to.port() == 666;
    let replies: Vec<_> = network.unrouted.iter().filter(to_attacker).collect();
    assert_eq!(replies.len(), 1, "a response, and no data");
    assert_eq!(replies[0].bytes[0], 2);
    network.run(secs(15));
    let states: Vec<_> = network.peer(0).sessions.iter().map(|s| s.state).collect();
    assert_eq!(states, ["live"], "the client's own");
}

#[test]
fn a_forged_cookie_and_response_change_nothing() {
    let mut network = Network::pair();
    network.capture = Some(Vec::new());
    network.run(secs(1));
    let capture = network.capture.take().unwrap();
    let initiation = capture.iter().find(|d| d.bytes[0] == 1).unwrap();
    let index = initiation.bytes[4..8].to_vec();
    let port = network.peer(1).sessions[0].port;
    let before = network.peer(1).sessions[0].endpoint;

    for (kind, len) in [(2_u8, 92), (3, 64)] {
        let mut bytes = vec![0x5a; len];
        bytes[..4].copy_from_slice(&[kind, 0, 0, 0]);
        let place = if kind == 2 { 8 } else { 4 };
        bytes[place..place + 4].copy_from_slice(&index);
        network.receive(1, port, "203.0.113.66:666".parse().unwrap(), &mut bytes);
    }

    assert_eq!(network.drops(1, Drop::InvalidMac), 1);
    assert_eq!(network.drops(1, Drop::Unexpected), 1);
    assert_eq!(network.peer(1).sessions[0].endpoint, before);
    assert!(network.reachable(1));
}

#[test]
fn malformed_probes_are_counted() {
    let mut network = ready();
    let to = (inner::SERVER, inner::PROBE_PORT);

    for json in [&b"{"[..], b"[]", &[b'x'; 1_200]] {
        network.packet(1, &inner::probe_packet(inner::CLIENT, to, json), 0);
    }
    network.packet(
        1,
        &inner::probe_packet(
            inner::CLIENT,
            to,
            br#"{"msgType":"PONG","timeStamp":"2020-01-01T00:00:00Z"}"#,
        ),
        0,
    );
    network.run(ms(20));

    assert_eq!(network.drops(0, Drop::ProbeMalformed), 3);
    assert_eq!(network.drops(0, Drop::ProbeUnexpected), 1);
}

#[test]
fn replies_to_a_flood_of_probes_are_limited() {
    let mut network = ready();
    let to = (inner::SERVER, inner::PROBE_PORT);
    let ping = probe::ping(
        "server",
        1,
        &probe::Gateway {
            version: "1".into(),
            replica: "client-0".into(),
            lane: LaneId::ONLY,
            replicas: None,
            leaving: false,
            nodes: None,
            heard: None,
            direct: false,
            place: None,
        },
        None,
    );

    for _ in 0..5_000 {
        network.packet(1, &inner::probe_packet(inner::CLIENT, to, &ping), 0);
    }
    network.run(ms(20));

    let handled = u64::from(peer::PROBES_BURST);
    assert!(network.drops(0, Drop::ProbeRate) >= 5_000 - handled);
    network.run(secs(2));
    assert!(network.reachable(1), "its own probes get replies again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_datagram_breaks_the_sessions(
        kind in 0..6_u8,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        len in prop_oneof![Just(148_usize), Just(92), Just(64), Just(32), 0..300_usize],
    ) {
        let mut network = Network::pair();
        network.run(ms(50));
        let index = network.peer(0).sessions[0].slot << 8 | 1;
        let mut bytes = bytes;
        bytes.resize(len, 0xa5);
        if let Some(head) = bytes.get_mut(..4) {
            head.copy_from_slice(&[kind, 0, 0, 0]);
        }
        for place in [4, 8] {
            if let Some(receiver) = bytes.get_mut(place..place + 4) {
                receiver.copy_from_slice(&index.to_le_bytes());
            }
        }

        inject(&mut network, "203.0.113.66:666".parse().unwrap(), &bytes);
        network.run(secs(1));

        prop_assert!(network.reachable(0) && network.reachable(1));
    }

    #[test]
    fn no_authenticated_packet_breaks_the_sessions(
        packet in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut network = Network::pair();
        network.run(ms(50));

        network.packet(1, &packet, 0);
        network.run(secs(1));

        prop_assert!(network.reachable(0) && network.reachable(1));
    }
}
