//! Limits that an observer or a peer may exhaust do not affect other senders.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

fn stranger(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(203, a, b, c), 4_000).into()
}

/// A handshake response for the session of host 1, from an observer who has read its index off the initiation.
fn forged_response(world: &World, handshake: u32) -> Vec<u8> {
    let index = world.peer(1).sessions[0].slot << 8 | handshake;
    let mut bytes = vec![0x5a; 92];
    bytes[..4].copy_from_slice(&[2, 0, 0, 0]);
    bytes[8..12].copy_from_slice(&index.to_le_bytes());
    bytes
}

/// Writes the mac1 of a message for the key `receiver`, as anyone who knows the public key can.
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

/// A client whose initiation is in flight, and the port that waits for the response.
fn waiting_client() -> (World, PortId) {
    let mut world = World::pair();
    world.run(ms(1));
    let port = world.peer(1).sessions[0].port;
    assert_eq!(world.peer(1).sessions[0].state, "handshaking");
    (world, port)
}

#[test]
fn junk_responses_leave_the_true_response_its_budget() {
    let (mut world, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&world, 1);
        world.receive(1, port, stranger(number), &mut bytes);
    }
    world.run(ms(20));

    assert!(world.reachable(1), "by the first handshake");
    assert_eq!(world.drops(1, Drop::InvalidMac), 1_000);
    assert_eq!(world.drops(1, Drop::HandshakeRate), 0);
}

#[test]
fn responses_to_no_handshake_in_progress_leave_the_true_response_its_budget() {
    let (mut world, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&world, 2 + number % 250);
        add_mac1(&mut bytes, CLIENT_KEY);
        world.receive(1, port, stranger(number), &mut bytes);
    }
    world.run(ms(20));

    assert!(world.reachable(1), "by the first handshake");
    assert_eq!(world.drops(1, Drop::Unexpected), 1_000);
}

#[test]
fn responses_that_cost_a_diffie_hellman_are_limited() {
    let (mut world, port) = waiting_client();

    for number in 0..1_000 {
        let mut bytes = forged_response(&world, 1);
        add_mac1(&mut bytes, CLIENT_KEY);
        world.receive(1, port, stranger(number), &mut bytes);
    }

    assert_eq!(world.drops(1, Drop::InvalidHandshake), 16);
    assert_eq!(world.drops(1, Drop::HandshakeRate), 1_000 - 16);
    world.run(secs(2));
    assert!(world.reachable(1), "by a later handshake");
}

#[test]
fn forged_responses_do_not_use_up_the_budget_of_probes() {
    let mut world = World::pair();
    world.run(secs(1));
    let before = world.peer(1).sessions[0].clone();

    for _ in 0..500 {
        for _ in 0..10 {
            let mut bytes = forged_response(&world, 1);
            world.receive(1, before.port, stranger(1), &mut bytes);
        }
        world.run(ms(10));
    }

    assert_eq!(world.drops(1, Drop::InvalidMac), 5_000);
    assert_eq!(world.drops(1, Drop::ProbeRate), 0);
    assert_eq!(world.peer(1).sessions[0].slot, before.slot);
    assert!(world.reachable(1));
}

#[test]
fn a_captured_initiation_is_not_remembered() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    let now = world.now;
    let key = LocalKey::new(&CLIENT_KEY.into());
    let mut client = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), 5);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = client.initiate(&mut buffer).unwrap();
    let source = stranger(1);

    world.receive(server, PortId::LISTEN, source, &mut buffer[..len].to_vec());
    let keys = &world.hosts[server].engine.keys;
    assert_eq!(keys.recent(source.ip()), None, "not proved yet");
    let response = world.flying.pop_back().unwrap().bytes;
    let Ok(Opened::Established(len)) = client.open(&response, &mut buffer) else {
        panic!("a response");
    };
    let home = stranger(2);
    world.receive(server, PortId::LISTEN, home, &mut buffer[..len].to_vec());

    let keys = &world.hosts[server].engine.keys;
    assert_eq!(keys.recent(source.ip()), None);
    assert_eq!(
        keys.recent(home.ip()),
        Some(noise::public_key(&SERVER_KEY.into()))
    );
    assert_eq!(world.now, now);
}

/// A PING of the client's as an inner packet, with `extra` in its object.
fn ping(extra: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"clusterID":"server","msgType":"PING","timeStamp":"2026-01-01T00:00:00Z"{extra}}}"#
    );
    let to = (inner::SERVER, inner::PROBE_PORT);
    inner::probe_packet(inner::CLIENT, to, json.as_bytes())
}

#[test]
fn all_sessions_of_a_peer_share_one_budget_of_probes() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    let mut clients = Vec::new();
    let mut buffer = [0; HANDSHAKE_BUFFER];
    for number in 0..20 {
        let key = LocalKey::new(&CLIENT_KEY.into());
        let mut client = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), number);
        let len = client.initiate(&mut buffer).unwrap();
        let from = stranger(number);
        world.receive(server, PortId::LISTEN, from, &mut buffer[..len].to_vec());
        let response = world.flying.pop_back().unwrap().bytes;
        let Ok(Opened::Established(len)) = client.open(&response, &mut buffer) else {
            panic!("a response");
        };
        world.receive(server, PortId::LISTEN, from, &mut buffer[..len].to_vec());
        clients.push(client);
    }

    let packet = ping("");
    let mut out = vec![0; packet.len() + 32];
    for (number, client) in (0..).zip(&mut clients) {
        for _ in 0..100 {
            let len = client.seal(&packet, &mut out).unwrap();
            world.receive(server, PortId::LISTEN, stranger(number), &mut out[..len]);
        }
    }

    let handled = 2_000 - world.drops(server, Drop::ProbeRate);
    assert_eq!(handled, u64::from(peer::PROBES_BURST));
}

#[test]
fn a_pong_is_never_much_longer_than_its_ping() {
    let mut world = World::pair();
    world.run(ms(120));
    let numbers = vec!["1e15"; 150].join(",");

    world.flying.clear();
    world.packet(1, &ping(&format!(r#","n":[{numbers}]"#)), 0);
    let request = world.flying[0].bytes.len();
    world.run(ms(5));

    assert_eq!(world.drops(0, Drop::ProbeMalformed), 1);
    let longest = world.flying.iter().map(|d| d.bytes.len()).max();
    assert!(longest.unwrap_or(0) < request + 200);
    world.packet(1, &ping(r#","n":[1,2,3]"#), 0);
    world.run(ms(20));
    assert_eq!(
        world.drops(0, Drop::ProbeMalformed),
        1,
        "a well-formed PING"
    );
}

/// A gateway of 300 peers with a key for each; one of them is the usual client.
fn server_of_many_keys() -> World {
    let mut world = World::new();
    let server = world.host("server-0");
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
    world.set_peers(server, others.chain([serving()]).collect());
    world
}

/// A client's tunnel with a slot that hints at the server's key, or at one that the server does not have.
fn client(is_hinted: bool) -> Tunnel {
    let server = noise::public_key(&SERVER_KEY.into());
    let hint = index::hint(&server);
    let slot = index::with_hint(5, if is_hinted { hint } else { hint ^ 0xff });

    Tunnel::new(&LocalKey::new(&CLIENT_KEY.into()), server, slot)
}

/// Lets the server receive an initiation of `client` and returns the type of its reply.
fn reply(world: &mut World, from: SocketAddr, client: &mut Tunnel) -> Option<u8> {
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = client.initiate(&mut buffer).unwrap();
    world.flying.clear();
    world.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
    world.flying.pop_back().map(|datagram| datagram.bytes[0])
}

/// An initiation with a wrong mac1 and an index without the server's hint.
fn junk_initiation() -> Vec<u8> {
    let hint = index::hint(&noise::public_key(&SERVER_KEY.into()));
    let mut bytes = vec![0x5a; 148];
    bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
    bytes[7] = hint ^ 0x0f;
    bytes
}

#[test]
fn junk_initiations_from_many_sources_delay_no_client_of_ours() {
    let mut world = server_of_many_keys();

    for number in 0..1_000 {
        world.receive(0, PortId::LISTEN, stranger(number), &mut junk_initiation());
    }
    assert!(
        world.drops(0, Drop::HandshakeBudget) > 300,
        "the limit is reached"
    );

    let without_hint = reply(&mut world, stranger(2_001), &mut client(false));
    assert_eq!(without_hint, None, "it is refused until the next second");
    let with_hint = reply(&mut world, stranger(2_002), &mut client(true));
    assert_eq!(with_hint, Some(2), "a response");
}

#[test]
fn junk_initiations_from_one_source_delay_no_other_source() {
    let mut world = server_of_many_keys();

    for _ in 0..10_000 {
        world.receive(0, PortId::LISTEN, stranger(1), &mut junk_initiation());
    }

    assert!(world.drops(0, Drop::HandshakeSourceBudget) > 9_900);
    assert_eq!(world.drops(0, Drop::HandshakeBudget), 0);
    assert_eq!(reply(&mut world, stranger(1), &mut client(true)), None);
    let without_hint = reply(&mut world, stranger(2), &mut client(false));
    assert_eq!(without_hint, Some(2), "a response");
}

#[test]
fn our_clients_hint_at_the_servers_key() {
    let mut world = World::pair();
    world.run(secs(1));

    let hint = index::hint(&noise::public_key(&SERVER_KEY.into()));
    let slot = world.peer(1).sessions[0].slot;
    assert_eq!(slot >> 16, u32::from(hint));
    assert_eq!(world.peer(0).sessions[0].remote_slot, Some(slot));
}

#[test]
fn without_a_free_hinted_slot_a_session_has_no_hint() {
    let mut world = World::pair();
    world.run(secs(1));
    let used = world.peer(1).sessions[0].slot;
    let server = noise::public_key(&SERVER_KEY.into());

    let engine = &mut world.hosts[1].engine;
    let slot = engine.hinted_slot(&server, |slot| slot & 0xffff == used & 0xffff);

    assert_eq!(slot & 0xffff, used & 0xffff);
    assert_ne!(slot, used);
}
