//! Tests that no endpoint is inside a tunnel, and that no session uses the port of another session.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tunnel};

/// Prefix to which host 0 remaps the other cluster.
const REMAPPED: &str = "10.101.0.0/16";
/// An address in `REMAPPED`.
const INSIDE: &str = "10.101.3.4:51840";
/// The address `INSIDE` as IPv4-mapped IPv6.
const MAPPED: &str = "[::ffff:10.101.3.4]:51840";

fn set_tunnelled(network: &mut Network, host: usize, net: &str) {
    let nets = [net.parse().unwrap()];
    network.hosts[host].engine.set_tunnelled(&nets);
    network.drain(host);
}

/// Creates two clusters with a session. Host 0 routes `REMAPPED` into a tunnel.
fn ready() -> Network {
    let mut network = Network::pair();
    set_tunnelled(&mut network, 0, REMAPPED);
    network.run(ms(120));
    network
}

fn sealed(network: &mut Network, from: usize, payload: &[u8]) -> Vec<u8> {
    network.in_flight.clear();
    network.packet(from, &inner_packet(payload), 0);
    network.in_flight.pop_back().unwrap().bytes
}

#[test]
fn a_session_never_follows_a_message_out_of_a_tunnel() {
    let mut network = ready();
    let before = network.peer(0).sessions[0].endpoint;

    for source in [INSIDE, MAPPED] {
        let mut bytes = sealed(&mut network, 1, b"nested");
        network.receive(0, PortId::LISTEN, source.parse().unwrap(), &mut bytes);
    }

    assert_eq!(network.peer(0).sessions[0].endpoint, before);
    assert_eq!(network.payloads(0), Vec::<Vec<u8>>::new());
    assert_eq!(network.drops(0, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn a_session_still_follows_its_peer_elsewhere() {
    let mut network = ready();
    let mut bytes = sealed(&mut network, 1, b"moved");

    let elsewhere = "203.0.113.9:4000".parse().unwrap();
    network.receive(0, PortId::LISTEN, elsewhere, &mut bytes);

    assert_eq!(network.peer(0).sessions[0].endpoint, elsewhere);
    assert_eq!(network.payloads(0), [b"moved"]);
}

#[test]
fn no_response_is_sent_into_a_tunnel() {
    let mut network = Network::pair();
    set_tunnelled(&mut network, 0, REMAPPED);
    network.run(ms(1)); // The initiation is in flight.
    let mut initiation = network.in_flight.pop_back().unwrap().bytes;
    assert_eq!(initiation[0], 1);

    for source in [INSIDE, MAPPED] {
        network.receive(0, PortId::LISTEN, source.parse().unwrap(), &mut initiation);
    }

    assert!(network.in_flight.is_empty());
    assert_eq!(network.peer(0).sessions.len(), 0);
    assert_eq!(network.drops(0, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn no_session_is_opened_into_a_tunnel() {
    let mut network = Network::new();
    let client = network.host("client-0");
    set_tunnelled(&mut network, client, REMAPPED);
    let mut config = calling(&[INSIDE.parse().unwrap()]);
    let Role::Client { addresses, .. } = &mut config.role else {
        panic!("expected a client");
    };
    addresses.push("gw.example".into());
    network.set_peers(client, vec![config]);
    let now = network.now;
    let resolved = vec![INSIDE.parse().unwrap(), MAPPED.parse().unwrap()];

    let engine = &mut network.hosts[client].engine;
    engine.handle_resolved(PEER, "gw.example", resolved, now);
    network.drain(client);
    network.run(secs(5));

    assert_eq!(network.sent, 0);
    assert_eq!(network.drops(client, Drop::EndpointInsideTunnel), 2);
}

#[test]
fn a_session_ends_when_its_endpoint_becomes_part_of_a_tunnel() {
    let mut network = ready();
    let address = network.peer(0).sessions[0].endpoint;

    set_tunnelled(&mut network, 0, &format!("{}/32", address.ip()));
    network.run(secs(2));

    assert_eq!(network.peer(0).sessions.len(), 0);
    assert!(!network.reachable(0));
}

/// Creates a gateway with two peers. Host 0 is the server for host 1, and the client of host 2 in
/// another cluster. Returns the client port of host 0.
fn with_a_port() -> (Network, PortId) {
    const OTHER: [u8; 32] = [0x77; 32];
    let mut network = Network::pair();
    let other = network.host("other-0");
    network.set_peers(
        other,
        vec![PeerConfig {
            local_private_key: OTHER.into(),
            ..serving_other()
        }],
    );
    let address = network.address(other);
    let calling = PeerConfig {
        index: 2,
        cluster_id: "other".into(),
        local_private_key: SERVER_KEY.into(),
        public_key: noise::public_key(&OTHER.into()),
        ..calling(&[address])
    };
    network.set_peers(0, vec![serving(), calling]);
    network.run(secs(1));
    assert_eq!(network.hosts[0].ports.len(), 2);
    let port = *network.hosts[0].ports.last().unwrap();
    (network, port)
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
    let (mut network, port) = with_a_port();
    let mut bytes = sealed(&mut network, 1, b"at the wrong port");
    let from = network.peer(0).sessions[0].endpoint;

    network.receive(0, port, from, &mut bytes);
    assert_eq!(network.peer(0).sessions[0].port, PortId::LISTEN);
    assert_eq!(network.drops(0, Drop::ForeignPort), 1);
    let other = network.hosts[0].engine.peers.get(2).unwrap().config.clone();
    network.set_peers(0, vec![other]);

    assert!(
        network.hosts[0].ports.contains(&port),
        "it belongs to another session"
    );
    network.run(secs(2));
    assert!(
        network.hosts[0]
            .engine
            .select(2, 0, std::net::Ipv4Addr::UNSPECIFIED)
            .is_some()
    );
}

#[test]
fn an_initiation_at_another_sessions_port_gets_no_response() {
    let (mut network, port) = with_a_port();
    let address = network.address(0);
    network.restart(1, "client-0", vec![calling(&[address])]);
    network.in_flight.clear();
    network.latency = ms(50); // Keeps the initiation in flight.
    network.run_until(secs(3), |network| {
        network.in_flight.iter().any(|d| d.bytes[0] == 1)
    });
    let initiation = network.in_flight.iter().find(|d| d.bytes[0] == 1).unwrap();
    let (from, mut bytes) = (initiation.from, initiation.bytes.clone());
    network.in_flight.clear();
    let before = network.peer(0).sessions.len();

    network.receive(0, port, from, &mut bytes);

    assert_eq!(network.drops(0, Drop::ForeignPort), 1);
    assert_eq!(network.peer(0).sessions.len(), before);
    assert!(!network.in_flight.iter().any(|d| d.bytes[0] == 2));
}

#[test]
fn a_server_that_rekeys_from_elsewhere_stays_in_the_ports_session() {
    let mut network = Network::new();
    let client = network.host("client-0");
    network.set_peers(client, vec![calling(&["192.0.2.99:0".parse().unwrap()])]);
    network.run(ms(20));
    let initiation = network.unrouted.pop().unwrap();
    let key = LocalKey::new(&SERVER_KEY.into());
    let mut server = Tunnel::new(&key, noise::public_key(&CLIENT_KEY.into()), 9);
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let Ok(Opened::Response(len)) = server.open(&initiation.bytes, &mut buffer) else {
        panic!("expected an initiation");
    };
    let port = network.peer(client).sessions[0].port;
    network.receive(client, port, initiation.to, &mut buffer[..len].to_vec());
    assert!(network.reachable(client));
    network.in_flight.clear();

    let len = server.initiate(&mut buffer).unwrap();
    let elsewhere = "203.0.113.9:4000".parse().unwrap();
    network.receive(client, port, elsewhere, &mut buffer[..len].to_vec());

    assert!(
        network
            .in_flight
            .iter()
            .any(|d| d.bytes[0] == 2 && d.to == elsewhere)
    );
    assert_eq!(network.peer(client).sessions.len(), 1);
    assert_eq!(network.drops(client, Drop::ForeignPort), 0);
}

/// Connects a replica of the client's cluster with the slot 5. The replica describes itself as a
/// gateway of this project.
fn replica_with_slot_5(network: &mut Network, from: SocketAddr) -> Tunnel {
    let key = LocalKey::new(&CLIENT_KEY.into());
    let mut tunnel = Tunnel::new(&key, noise::public_key(&SERVER_KEY.into()), 5);
    handshake(network, &mut tunnel, from);
    let json = br#"{"clusterID":"server","msgType":"PING","timeStamp":"2026-01-01T00:00:00Z","gateway":{"version":"1","replica":"x"}}"#;
    let to = (inner::SERVER, inner::PROBE_PORT);
    send(
        network,
        &mut tunnel,
        from,
        &inner::probe_packet(inner::CLIENT, to, json),
    );
    tunnel
}

fn handshake(network: &mut Network, tunnel: &mut Tunnel, from: SocketAddr) {
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = tunnel.initiate(&mut buffer).unwrap();
    network.in_flight.clear();
    network.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
    let response = network.in_flight.pop_back().unwrap().bytes;
    let Ok(Opened::Established(len)) = tunnel.open(&response, &mut buffer) else {
        panic!("expected a response");
    };
    network.receive(0, PortId::LISTEN, from, &mut buffer[..len]);
}

fn send(network: &mut Network, tunnel: &mut Tunnel, from: SocketAddr, packet: &[u8]) {
    let mut out = vec![0; packet.len() + 32];
    tunnel.seal(packet, &mut out).unwrap();
    network.receive(0, PortId::LISTEN, from, &mut out);
}

fn endpoints(network: &Network) -> BTreeSet<SocketAddr> {
    let sessions = network.peer(0).sessions.into_iter();
    sessions.map(|session| session.endpoint).collect()
}

#[test]
fn two_replicas_with_the_same_slot_have_a_session_each() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let (here, there) = (
        "203.0.113.1:1".parse().unwrap(),
        "203.0.113.2:2".parse().unwrap(),
    );

    let mut one = replica_with_slot_5(&mut network, here);
    let mut other = replica_with_slot_5(&mut network, there);

    assert_eq!(endpoints(&network), BTreeSet::from([here, there]));
    send(&mut network, &mut one, here, &inner_packet(b"one"));
    send(&mut network, &mut other, there, &inner_packet(b"other"));
    assert_eq!(network.payloads(server), [&b"one"[..], b"other"]);
    network.run(ms(900)); // The next initiation needs a newer timestamp.
    handshake(&mut network, &mut one, here);
    assert_eq!(
        endpoints(&network),
        BTreeSet::from([here, there]),
        "after a rekey"
    );
}

#[test]
fn a_replica_that_moved_while_silent_keeps_its_session() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let (here, there) = (
        "203.0.113.1:1".parse().unwrap(),
        "203.0.113.2:2".parse().unwrap(),
    );
    let mut replica = replica_with_slot_5(&mut network, here);

    network.run(ms(1_200));
    handshake(&mut network, &mut replica, there);

    assert_eq!(endpoints(&network), BTreeSet::from([there]));
}
