//! What an observer or a peer may use up takes nothing from anybody else.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

fn stranger(number: u32) -> SocketAddr {
    let [_, a, b, c] = number.to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(203, a, b, c), 4_000).into()
}

/// A handshake response for the session of host 1 that anybody could make up.
fn forged_response(world: &World) -> Vec<u8> {
    let index = world.peer(1).sessions[0].slot << 8 | 1;
    let mut bytes = vec![0x5a; 92];
    bytes[..4].copy_from_slice(&[2, 0, 0, 0]);
    bytes[8..12].copy_from_slice(&index.to_le_bytes());
    bytes
}

#[test]
fn forged_responses_take_nothing_from_the_probes() {
    let mut world = World::pair();
    world.run(secs(1));
    let before = world.peer(1).sessions[0].clone();

    for _ in 0..500 {
        for _ in 0..10 {
            let mut bytes = forged_response(&world);
            world.receive(1, before.port, stranger(1), &mut bytes);
        }
        world.run(ms(10));
    }

    assert!(world.drops(1, Drop::HandshakeRate) > 4_000);
    assert_eq!(world.drops(1, Drop::ProbeRate), 0);
    assert_eq!(world.peer(1).sessions[0].slot, before.slot);
    assert!(world.reachable(1));
}

#[test]
fn a_captured_initiation_teaches_no_hints() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    let now = world.now;
    let key = LocalKey::new(CLIENT_KEY);
    let mut client = Tunnel::new(&key, noise::public_key(SERVER_KEY), 5);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = client.initiate(&mut buffer).unwrap();
    let source = stranger(1);

    world.receive(server, PortId::LISTEN, source, &mut buffer[..len].to_vec());
    let keys = &world.hosts[server].engine.keys;
    assert_eq!(keys.hint(source.ip()), None, "not proved yet");
    let response = world.flying.pop_back().unwrap().bytes;
    let Ok(Opened::Established(len)) = client.open(&response, &mut buffer) else {
        panic!("a response");
    };
    let home = stranger(2);
    world.receive(server, PortId::LISTEN, home, &mut buffer[..len].to_vec());

    let keys = &world.hosts[server].engine.keys;
    assert_eq!(keys.hint(source.ip()), None);
    assert_eq!(keys.hint(home.ip()), Some(noise::public_key(SERVER_KEY)));
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
        let key = LocalKey::new(CLIENT_KEY);
        let mut client = Tunnel::new(&key, noise::public_key(SERVER_KEY), number);
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
fn an_answer_is_never_much_longer_than_its_question() {
    let mut world = World::pair();
    world.run(ms(120));
    let numbers = vec!["1e15"; 150].join(",");

    world.flying.clear();
    world.packet(1, &ping(&format!(r#","n":[{numbers}]"#)), 0);
    let question = world.flying[0].bytes.len();
    world.run(ms(5));

    assert_eq!(world.drops(0, Drop::ProbeMalformed), 1);
    let longest = world.flying.iter().map(|d| d.bytes.len()).max();
    assert!(longest.unwrap_or(0) < question + 200);
    world.packet(1, &ping(r#","n":[1,2,3]"#), 0);
    world.run(ms(20));
    assert_eq!(world.drops(0, Drop::ProbeMalformed), 1, "an honest one");
}
