//! Tests that an attacker who exhausts a limit does not affect other senders.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

fn stranger(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(203, a, b, c), 4_000).into()
}

/// Returns a forged handshake response for the session of host 1. The forger has read the index
/// from the initiation.
fn forged_response(network: &Network, handshake: u32) -> Vec<u8> {
    let index = network.peer(1).sessions[0].slot << 8 | handshake;
    let mut bytes = vec![0x5a; 92];
    bytes[..4].copy_from_slice(&[2, 0, 0, 0]);
    bytes[8..12].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// Writes the mac1 of a message for the key `receiver`. Anyone who knows the public key can compute
/// it.
fn add_mac1(message: &mut [u8], receiver: [u8; 32]) {
    use blake2::digest::Mac;
    use blake2::digest::consts::U16;
    use blake2::{Blake2s256, Blake2sMac, Digest as _};

    let public = noise::public_key(&receiver.into());
    let key = Blake2s256::new()
        .chain_update(b"mac1----")
        .chain_update(public)
        .finalize();
    let (signed, macs) = message.split_at_mut(message.len() - 32);
    let mac = <Blake2sMac<U16> as Mac>::new_from_slice(&key).unwrap();
    macs[..16].copy_from_slice(&mac.chain_update(signed).finalize().into_bytes());
}

/// Returns a client whose initiation is in flight, and the port that waits for the response.
fn waiting_client() -> (Network, PortId) {
    let mut network = Network::pair();
    network.run(ms(1));
    let port = network.peer(1).sessions[0].port;
    assert_eq!(network.peer(1).sessions[0].state, "handshaking");
    (network, port)
}

#[test]
fn junk_responses_leave_the_true_response_its_budget() {
    let (mut network, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&network, 1);
        network.receive(1, port, stranger(number), &mut bytes);
    }
    network.run(ms(20));

    assert!(network.reachable(1), "by the first handshake");
    assert_eq!(network.drops(1, Drop::InvalidMac), 1_000);
    assert_eq!(network.drops(1, Drop::HandshakeRate), 0);
}

#[test]
fn responses_to_no_handshake_in_progress_leave_the_true_response_its_budget() {
    let (mut network, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&network, 2 + number % 250);
        add_mac1(&mut bytes, CLIENT_KEY);
        network.receive(1, port, stranger(number), &mut bytes);
    }
    network.run(ms(20));

    assert!(network.reachable(1), "by the first handshake");
    assert_eq!(network.drops(1, Drop::Unexpected), 1_000);
}

#[test]
fn responses_that_cost_a_diffie_hellman_are_limited() {
    let (mut network, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&network, 1);
        add_mac1(&mut bytes, CLIENT_KEY);
        network.receive(1, port, stranger(number), &mut bytes);
    }

    assert_eq!(network.drops(1, Drop::InvalidHandshake), 16);
    assert_eq!(network.drops(1, Drop::HandshakeRate), 1_000 - 16);
    network.run(secs(2));
    assert!(network.reachable(1), "by a later handshake");
}

#[test]
fn forged_responses_do_not_use_up_the_budget_of_probes() {
    let mut network = Network::pair();
    network.run(secs(1));
    let before = network.peer(1).sessions[0].clone();

    for _ in 0..500 {
        for _ in 0..10 {
            let mut bytes = forged_response(&network, 1);
            network.receive(1, before.port, stranger(1), &mut bytes);
        }
        network.run(ms(10));
    }

    assert_eq!(network.drops(1, Drop::InvalidMac), 5_000);
    assert_eq!(network.drops(1, Drop::ProbeRate), 0);
    assert_eq!(network.peer(1).sessions[0].slot, before.slot);
    assert!(network.reachable(1));
}

#[test]
fn a_captured_initiation_is_not_remembered() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let now = network.now;
    let key = LocalKey::new(&CLIENT_KEY.into());
    let mut client = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), 5);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = client.initiate(&mut buffer).unwrap();
    let source = stranger(1);

    network.receive(server, PortId::LISTEN, source, &mut buffer[..len].to_vec());
    let keys = &network.hosts[server].engine.keys;
    assert_eq!(keys.recent(source.ip()), None, "not proved yet");
    let response = network.in_flight.pop_back().unwrap().bytes;
    let Ok(Opened::Established(len)) = client.open(&response, &mut buffer) else {
        panic!("expected a response");
    };
    let home = stranger(2);
    network.receive(server, PortId::LISTEN, home, &mut buffer[..len].to_vec());

    let keys = &network.hosts[server].engine.keys;
    assert_eq!(keys.recent(source.ip()), None);
    assert_eq!(
        keys.recent(home.ip()),
        Some(noise::public_key(&SERVER_KEY.into()))
    );
    assert_eq!(network.now, now);
}

/// Returns a PING of the client as an inner packet. `extra` is added to its JSON object.
fn ping(extra: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"clusterID":"server","msgType":"PING","timeStamp":"2026-01-01T00:00:00Z"{extra}}}"#
    );
    let to = (inner::SERVER, inner::PROBE_PORT);
    inner::probe_packet(inner::CLIENT, to, json.as_bytes())
}

#[test]
fn all_sessions_of_a_peer_share_one_budget_of_probes() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let mut clients = Vec::new();
    let mut buffer = [0; HANDSHAKE_BUFFER];
    for number in 0..20 {
        let key = LocalKey::new(&CLIENT_KEY.into());
        let mut client = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), number);
        let len = client.initiate(&mut buffer).unwrap();
        let from = stranger(number);
        network.receive(server, PortId::LISTEN, from, &mut buffer[..len].to_vec());
        let response = network.in_flight.pop_back().unwrap().bytes;
        let Ok(Opened::Established(len)) = client.open(&response, &mut buffer) else {
            panic!("expected a response");
        };
        network.receive(server, PortId::LISTEN, from, &mut buffer[..len].to_vec());
        clients.push(client);
    }

    let packet = ping("");
    let mut out = vec![0; packet.len() + 32];
    for (number, client) in (0..).zip(&mut clients) {
        for _ in 0..100 {
            let len = client.seal(&packet, &mut out).unwrap();
            network.receive(server, PortId::LISTEN, stranger(number), &mut out[..len]);
        }
    }

    let handled = 2_000 - network.drops(server, Drop::ProbeRate);
    assert_eq!(handled, u64::from(peer::PROBES_BURST));
}

#[test]
fn a_pong_is_never_much_longer_than_its_ping() {
    let mut network = Network::pair();
    network.run(ms(120));
    let numbers = vec!["1e15"; 150].join(",");

    network.in_flight.clear();
    network.packet(1, &ping(&format!(r#","n":[{numbers}]"#)), 0);
    let request = network.in_flight[0].bytes.len();
    network.run(ms(5));

    assert_eq!(network.drops(0, Drop::ProbeMalformed), 1);
    let longest = network.in_flight.iter().map(|d| d.bytes.len()).max();
    assert!(longest.unwrap_or(0) < request + 200);
    network.packet(1, &ping(r#","n":[1,2,3]"#), 0);
    network.run(ms(20));
    assert_eq!(
        network.drops(0, Drop::ProbeMalformed),
        1,
        "a well-formed PING"
    );
}

/// Returns a gateway of 300 peers, with a local key for each peer. One of the peers is `serving()`.
fn server_of_many_keys() -> Network {
    let mut network = Network::new();
    let server = network.host("server-0");
    let others = (2..=300_u16).map(|index| {
        let mut key = [0x33; 32];
        key[..2].copy_from_slice(&index.to_be_bytes());
        PeerConfig {
            index,
            cluster_id: format!("other-{index}"),
            local_private_key: key.into(),
            ..serving()
        }
    });
    network.set_peers(server, others.chain([serving()]).collect());
    network
}

/// Returns a client's tunnel. The hint in its slot matches the server's key if `is_hinted`.
/// Otherwise the hint matches no key of the server.
fn client(is_hinted: bool) -> Tunnel {
    let server = noise::public_key(&SERVER_KEY.into());
    let hint = index::hint(&server);
    let slot = index::with_hint(5, if is_hinted { hint } else { hint ^ 0xff });

    Tunnel::new(&LocalKey::new(&CLIENT_KEY.into()), server, slot)
}

/// Passes an initiation of `client` to the server, and returns the message type of the reply.
fn reply(network: &mut Network, from: SocketAddr, client: &mut Tunnel) -> Option<u8> {
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = client.initiate(&mut buffer).unwrap();
    network.in_flight.clear();
    network.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
    network
        .in_flight
        .pop_back()
        .map(|datagram| datagram.bytes[0])
}

/// Returns an initiation with a wrong mac1. The hint in its index does not match the server's key.
fn junk_initiation() -> Vec<u8> {
    let hint = index::hint(&noise::public_key(&SERVER_KEY.into()));
    let mut bytes = vec![0x5a; 148];
    bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
    bytes[7] = hint ^ 0x0f;
    bytes
}

#[test]
fn junk_initiations_from_many_sources_delay_no_client_of_ours() {
    let mut network = server_of_many_keys();

    for number in 0..1_000 {
        network.receive(0, PortId::LISTEN, stranger(number), &mut junk_initiation());
    }
    assert!(
        network.drops(0, Drop::HandshakeBudget) > 300,
        "the limit is reached"
    );

    let without_hint = reply(&mut network, stranger(2_001), &mut client(false));
    assert_eq!(without_hint, None, "it is refused until the next second");
    let with_hint = reply(&mut network, stranger(2_002), &mut client(true));
    assert_eq!(with_hint, Some(2), "a response");
}

#[test]
fn junk_initiations_from_one_source_delay_no_other_source() {
    let mut network = server_of_many_keys();

    for _ in 0..10_000 {
        network.receive(0, PortId::LISTEN, stranger(1), &mut junk_initiation());
    }

    assert!(network.drops(0, Drop::HandshakeSourceBudget) > 9_900);
    assert_eq!(network.drops(0, Drop::HandshakeBudget), 0);
    assert_eq!(reply(&mut network, stranger(1), &mut client(false)), None);
    let without_hint = reply(&mut network, stranger(2), &mut client(false));
    assert_eq!(without_hint, Some(2), "a response");
}

#[test]
fn junk_initiations_with_the_address_of_a_client_of_ours_do_not_delay_it() {
    let mut network = server_of_many_keys();

    // The initiations exhaust the limit of their source for keys that do not match the hint. Few
    // keys match the hint, so the limit for these keys is not exhausted.
    for _ in 0..500 {
        network.receive(0, PortId::LISTEN, stranger(1), &mut junk_initiation());
    }

    assert!(network.drops(0, Drop::HandshakeSourceBudget) > 400);
    let without_hint = reply(&mut network, stranger(1), &mut client(false));
    assert_eq!(without_hint, None, "it is refused until the next second");
    let with_hint = reply(&mut network, stranger(1), &mut client(true));
    assert_eq!(with_hint, Some(2), "a response");
}

#[test]
fn our_clients_hint_at_the_servers_key() {
    let mut network = Network::pair();
    network.run(secs(1));

    let hint = index::hint(&noise::public_key(&SERVER_KEY.into()));
    let slot = network.peer(1).sessions[0].slot;
    assert_eq!(slot >> 16, u32::from(hint));
    assert_eq!(network.peer(0).sessions[0].remote_slot, Some(slot));
}

#[test]
fn without_a_free_hinted_slot_a_session_has_no_hint() {
    let mut network = Network::pair();
    network.run(secs(1));
    let used = network.peer(1).sessions[0].slot;
    let server = noise::public_key(&SERVER_KEY.into());

    let engine = &mut network.hosts[1].engine;
    let slot = engine.hinted_slot(&server, |slot| slot & 0xffff == used & 0xffff);

    assert_eq!(slot & 0xffff, used & 0xffff);
    assert_ne!(slot, used);
}
