//! Endpoints and ports of sessions: never inside a tunnel, never another session's port.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

/// The prefix to which the other cluster is remapped at host 0, and one address in it.
const SEEN: &str = "10.101.0.0/16";
const INSIDE: &str = "10.101.3.4:51840";
const MAPPED: &str = "[::ffff:10.101.3.4]:51840";

fn set_tunnelled(world: &mut World, host: usize, net: &str) {
    let nets = [net.parse().unwrap()];
    world.hosts[host].engine.set_tunnelled(&nets);
    world.drain(host);
}

/// Two clusters with a session; the client's next messages are not delivered.
fn ready() -> World {
    let mut world = World::pair();
    set_tunnelled(&mut world, 0, SEEN);
    world.run(ms(120));
    world
}

fn sealed(world: &mut World, from: usize, payload: &[u8]) -> Vec<u8> {
    world.flying.clear();
    world.packet(from, &inner_packet(payload), 0);
    world.flying.pop_back().unwrap().bytes
}

#[test]
fn a_session_never_follows_a_message_out_of_a_tunnel() {
    let mut world = ready();
    let before = world.peer(0).sessions[0].endpoint;

    for source in [INSIDE, MAPPED] {
        let mut bytes = sealed(&mut world, 1, b"nested");
        world.receive(0, PortId::LISTEN, source.parse().unwrap(), &mut bytes);
    }

    assert_eq!(world.peer(0).sessions[0].endpoint, before);
    assert_eq!(world.payloads(0), Vec::<Vec<u8>>::new());
    assert_eq!(world.drops(0, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn a_session_still_follows_its_peer_elsewhere() {
    let mut world = ready();
    let mut bytes = sealed(&mut world, 1, b"moved");

    let elsewhere = "203.0.113.9:4000".parse().unwrap();
    world.receive(0, PortId::LISTEN, elsewhere, &mut bytes);

    assert_eq!(world.peer(0).sessions[0].endpoint, elsewhere);
    assert_eq!(world.payloads(0), [b"moved"]);
}

#[test]
fn no_response_is_sent_into_a_tunnel() {
    let mut world = World::pair();
    set_tunnelled(&mut world, 0, SEEN);
    world.run(ms(1)); // The initiation is in flight.
    let mut initiation = world.flying.pop_back().unwrap().bytes;
    assert_eq!(initiation[0], 1);

    for source in [INSIDE, MAPPED] {
        world.receive(0, PortId::LISTEN, source.parse().unwrap(), &mut initiation);
    }

    assert!(world.flying.is_empty());
    assert_eq!(world.peer(0).sessions.len(), 0);
    assert_eq!(world.drops(0, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn no_session_is_opened_into_a_tunnel() {
    let mut world = World::new();
    let client = world.host("client-0");
    set_tunnelled(&mut world, client, SEEN);
    let mut config = calling(&[INSIDE.parse().unwrap()]);
    let Role::Client { addresses, .. } = &mut config.role else {
        panic!("a client");
    };
    addresses.push("gw.example".into());
    world.set_peers(client, vec![config]);
    let now = world.now;
    let resolved = vec![INSIDE.parse().unwrap(), MAPPED.parse().unwrap()];

    let engine = &mut world.hosts[client].engine;
    engine.handle_resolved(PEER, "gw.example", resolved, now);
    world.drain(client);
    world.run(secs(5));

    assert_eq!(world.sent, 0);
    assert_eq!(world.drops(client, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn a_session_ends_when_its_endpoint_becomes_part_of_a_tunnel() {
    let mut world = ready();
    let address = world.peer(0).sessions[0].endpoint;

    set_tunnelled(&mut world, 0, &format!("{}/32", address.ip()));
    world.run(secs(2));

    assert_eq!(world.peer(0).sessions.len(), 0);
    assert!(!world.reachable(0));
}

/// A gateway with two peers: host 0 serves the usual client, and host 2 is the client of another cluster, with a
/// session to host 0 from a port of its own.
fn with_a_port() -> (World, PortId) {
    const OTHER: [u8; 32] = [0x77; 32];
    let mut world = World::pair();
    let other = world.host("other-0");
    world.set_peers(
        other,
        vec![PeerConfig {
            local_private_key: OTHER.into(),
            ..serving_other()
        }],
    );
    let address = world.address(other);
    let calling = PeerConfig {
        index: 2,
        cluster_id: "other".into(),
        local_private_key: SERVER_KEY.into(),
        public_key: noise::public_key(&OTHER.into()),
        ..calling(&[address])
    };
    world.set_peers(0, vec![serving(), calling]);
    world.run(secs(1));
    assert_eq!(world.hosts[0].ports.len(), 2);
    let port = *world.hosts[0].ports.last().unwrap();
    (world, port)
}

fn serving_other() -> PeerConfig {
    PeerConfig {
        cluster_id: "server".into(),
        public_key: noise::public_key(&SERVER_KEY.into()),
        ..serving()
    }
}

#[test]
fn a_peer_cannot_have_another_peers_port_closed() {
    let (mut world, port) = with_a_port();
    let mut bytes = sealed(&mut world, 1, b"at the wrong port");
    let from = world.peer(0).sessions[0].endpoint;

    world.receive(0, port, from, &mut bytes);
    assert_eq!(world.peer(0).sessions[0].port, PortId::LISTEN);
    assert_eq!(world.drops(0, Drop::ForeignPort), 1);
    let other = world.hosts[0].engine.peers.get(2).unwrap().config.clone();
    world.set_peers(0, vec![other]);

    assert!(
        world.hosts[0].ports.contains(&port),
        "it belongs to another session"
    );
    world.run(secs(2));
    assert!(world.hosts[0].engine.select(2, 0).is_some());
}

#[test]
fn an_initiation_at_another_sessions_port_gets_no_response() {
    let (mut world, port) = with_a_port();
    let address = world.address(0);
    world.restart(1, "client-0", vec![calling(&[address])]);
    world.flying.clear();
    world.latency = ms(50); // Long enough to find it in flight.
    world.run_until(secs(3), |world| {
        world.flying.iter().any(|d| d.bytes[0] == 1)
    });
    let initiation = world.flying.iter().find(|d| d.bytes[0] == 1).unwrap();
    let (from, mut bytes) = (initiation.from, initiation.bytes.clone());
    world.flying.clear();
    let before = world.peer(0).sessions.len();

    world.receive(0, port, from, &mut bytes);

    assert_eq!(world.drops(0, Drop::ForeignPort), 1);
    assert_eq!(world.peer(0).sessions.len(), before);
    assert!(!world.flying.iter().any(|d| d.bytes[0] == 2));
}

#[test]
fn a_server_that_rekeys_from_elsewhere_stays_in_the_ports_session() {
    let mut world = World::new();
    let client = world.host("client-0");
    world.set_peers(client, vec![calling(&["192.0.2.99:0".parse().unwrap()])]);
    world.run(ms(20));
    let initiation = world.strangers.pop().unwrap();
    let key = LocalKey::new(&SERVER_KEY.into());
    let mut server = Tunnel::new(&key, noise::public_key(&CLIENT_KEY.into()), 9);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let Ok(Opened::Response(len)) = server.open(&initiation.bytes, &mut buffer) else {
        panic!("an initiation");
    };
    let port = world.peer(client).sessions[0].port;
    world.receive(client, port, initiation.to, &mut buffer[..len].to_vec());
    assert!(world.reachable(client));
    world.flying.clear();

    let len = server.initiate(&mut buffer).unwrap();
    let elsewhere = "203.0.113.9:4000".parse().unwrap();
    world.receive(client, port, elsewhere, &mut buffer[..len].to_vec());

    assert!(
        world
            .flying
            .iter()
            .any(|d| d.bytes[0] == 2 && d.to == elsewhere)
    );
    assert_eq!(world.peer(client).sessions.len(), 1);
    assert_eq!(world.drops(client, Drop::ForeignPort), 0);
}

/// A replica of the client's cluster with the slot 5, which describes itself as one of ours.
fn replica_with_slot_5(world: &mut World, from: SocketAddr) -> Tunnel {
    let key = LocalKey::new(&CLIENT_KEY.into());
    let mut tunnel = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), 5);
    handshake(world, &mut tunnel, from);
    let json = br#"{"clusterID":"server","msgType":"PING","timeStamp":"2026-01-01T00:00:00Z","gateway":{"version":"1","replica":"x"}}"#;
    let to = (inner::SERVER, inner::PROBE_PORT);
    send(
        world,
        &mut tunnel,
        from,
        &inner::probe_packet(inner::CLIENT, to, json),
    );
    tunnel
}

fn handshake(world: &mut World, tunnel: &mut Tunnel, from: SocketAddr) {
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = tunnel.initiate(&mut buffer).unwrap();
    world.flying.clear();
    world.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
    let response = world.flying.pop_back().unwrap().bytes;
    let Ok(Opened::Established(len)) = tunnel.open(&response, &mut buffer) else {
        panic!("a response");
    };
    world.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
}

fn send(world: &mut World, tunnel: &mut Tunnel, from: SocketAddr, packet: &[u8]) {
    let mut out = vec![0; packet.len() + 32];
    tunnel.seal(packet, &mut out).unwrap();
    world.receive(0, PortId::LISTEN, from, &mut out);
}

fn endpoints(world: &World) -> BTreeSet<SocketAddr> {
    let sessions = world.peer(0).sessions.into_iter();
    sessions.map(|session| session.endpoint).collect()
}

#[test]
fn two_replicas_with_the_same_slot_have_a_session_each() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    let (here, there) = (
        "203.0.113.1:1".parse().unwrap(),
        "203.0.113.2:2".parse().unwrap(),
    );

    let mut one = replica_with_slot_5(&mut world, here);
    let mut other = replica_with_slot_5(&mut world, there);

    assert_eq!(endpoints(&world), BTreeSet::from([here, there]));
    send(&mut world, &mut one, here, &inner_packet(b"one"));
    send(&mut world, &mut other, there, &inner_packet(b"other"));
    assert_eq!(world.payloads(server), [&b"one"[..], b"other"]);
    world.run(ms(900)); // Timestamps follow the virtual clock.
    handshake(&mut world, &mut one, here);
    assert_eq!(
        endpoints(&world),
        BTreeSet::from([here, there]),
        "after a rekey"
    );
}

#[test]
fn a_replica_that_moved_while_silent_keeps_its_session() {
    let mut world = World::new();
    let server = world.host("server-0");
    world.set_peers(server, vec![serving()]);
    let (here, there) = (
        "203.0.113.1:1".parse().unwrap(),
        "203.0.113.2:2".parse().unwrap(),
    );
    let mut replica = replica_with_slot_5(&mut world, here);

    world.run(ms(1_200));
    handshake(&mut world, &mut replica, there);

    assert_eq!(endpoints(&world), BTreeSet::from([there]));
}
