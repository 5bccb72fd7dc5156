//! Tests peers other than gateways of this project: upstream's gateway and plain WireGuard.

use super::*;
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, Opened, Tick, Tunnel};
use serde_json::Value;

/// Simulates an upstream gateway: kernel WireGuard with one key, one session and a random index,
/// and upstream's probe.
struct Upstream {
    key: LocalKey,
    remote: [u8; 32],
    tunnel: Tunnel,
    /// The previous tunnel, which decrypts messages that were in flight during a handshake.
    previous: Option<Tunnel>,
    address: SocketAddr,
    endpoint: Option<SocketAddr>,
    index: u32,
    replies: bool,
    handshakes: usize,
    received: Vec<Vec<u8>>,
    pongs: Vec<Value>,
}

impl Upstream {
    fn new(private: [u8; 32], peer: [u8; 32], address: SocketAddr) -> Self {
        let key = LocalKey::new(&private.into());
        let remote = noise::public_key(&peer.into());
        Self {
            tunnel: Tunnel::new(&key, remote, 0x00de_adbe),
            key,
            remote,
            previous: None,
            address,
            endpoint: None,
            index: 0x00de_adbe,
            replies: true,
            handshakes: 0,
            received: Vec::new(),
            pongs: Vec::new(),
        }
    }

    /// Advances time for the network and for this gateway.
    fn run(&mut self, network: &mut Network, duration: Duration) {
        let end = network.now + duration;
        while network.now < end {
            network.run(ms(5));
            for datagram in std::mem::take(&mut network.unrouted) {
                if datagram.to == self.address {
                    self.handle(network, datagram);
                }
            }
            let mut buffer = [0; HANDSHAKE_BUFFER];
            if let (Tick::Keepalive(len) | Tick::Initiation(len), Some(to)) =
                (self.tunnel.tick(&mut buffer), self.endpoint)
            {
                network.send(self.address, to, buffer[..len].to_vec(), false);
            }
        }
    }

    fn handle(&mut self, network: &mut Network, datagram: Datagram) {
        let mut out = vec![0; datagram.bytes.len().max(HANDSHAKE_BUFFER)];
        if noise::classify(&datagram.bytes) == Some(Message::Initiation) {
            self.handshakes += 1;
            self.renew();
        }
        let opened = match (
            self.tunnel.open(&datagram.bytes, &mut out),
            &mut self.previous,
        ) {
            (Err(Drop::NoKeys), Some(previous)) => previous.open(&datagram.bytes, &mut out),
            (opened, _) => opened,
        };
        match opened {
            Ok(Opened::Packet(len)) => {
                self.endpoint = Some(datagram.from);
                self.handle_packet(network, out[..len].to_vec());
            }
            Ok(Opened::Keepalive) => self.endpoint = Some(datagram.from),
            Ok(Opened::Response(len) | Opened::Established(len)) => {
                self.endpoint = Some(datagram.from);
                network.send(self.address, datagram.from, out[..len].to_vec(), false);
            }
            Ok(Opened::Cookie) | Err(_) => {}
        }
    }

    fn handle_packet(&mut self, network: &mut Network, packet: Vec<u8>) {
        let Some(json) = packet.get(28..).filter(|json| json.first() == Some(&b'{')) else {
            return self.received.push(packet);
        };
        let mut object: Value = serde_json::from_slice(json).unwrap();
        if object["msgType"] == "PONG" {
            return self.pongs.push(object);
        }
        assert!(json.len() <= 1_024, "upstream's buffer");
        if self.replies {
            object["msgType"] = "PONG".into();
            let known = ["clusterID", "msgType", "timeStamp"];
            let object = object.as_object_mut().unwrap();
            object.retain(|key, _| known.contains(&key.as_str()));
            let json = serde_json::to_vec(object).unwrap();
            let addresses = inner::probe_addresses(&packet);
            self.send(
                network,
                &inner::probe_packet(addresses.destination, addresses.source, &json),
            );
        }
    }

    fn send(&mut self, network: &mut Network, packet: &[u8]) {
        let mut out = vec![0; packet.len() + 32];
        let len = self.tunnel.seal(packet, &mut out).unwrap();
        out.truncate(len);
        network.send(self.address, self.endpoint.unwrap(), out, false);
    }

    fn ping(&mut self, network: &mut Network) {
        let json =
            br#"{"clusterID":"server","msgType":"PING","timeStamp":"2026-11-21T10:00:00.5Z"}"#;
        let to = (inner::SERVER, inner::PROBE_PORT);
        self.send(network, &inner::probe_packet(inner::CLIENT, to, json));
    }

    /// Replaces the tunnel by a new one with another random index.
    fn renew(&mut self) {
        self.index = (self.index * 5 + 12_345) & 0x00ff_ffff;
        let tunnel = Tunnel::new(&self.key, self.remote, self.index);
        self.previous = Some(std::mem::replace(&mut self.tunnel, tunnel));
    }

    fn initiate(&mut self, network: &mut Network, to: SocketAddr) {
        self.renew();
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let len = self.tunnel.initiate(&mut buffer).unwrap();
        network.send(self.address, to, buffer[..len].to_vec(), false);
    }
}

fn elsewhere() -> SocketAddr {
    "203.0.113.50:51820".parse().unwrap()
}

/// Creates an upstream server, and one client replica of this project for each name in `replicas`.
fn upstream_server(replicas: &[&str]) -> (Network, Upstream, Vec<usize>) {
    let mut network = Network::new();
    let mut clients = Vec::new();
    for replica in replicas {
        clients.push(network.host(replica));
    }
    for client in &clients {
        let mut config = calling(&[elsewhere()]);
        let Role::Client { port, .. } = &mut config.role else {
            unreachable!("calling() returns a client");
        };
        *port = elsewhere().port();
        network.set_replicas(*client, replicas);
        network.set_peers(*client, vec![config]);
    }
    (
        network,
        Upstream::new(SERVER_KEY, CLIENT_KEY, elsewhere()),
        clients,
    )
}

#[test]
fn an_upstream_client_is_served_in_one_session() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let to = network.address(server);
    let mut upstream = Upstream::new(CLIENT_KEY, SERVER_KEY, elsewhere());

    upstream.initiate(&mut network, to);
    upstream.run(&mut network, ms(100));
    upstream.ping(&mut network);
    upstream.run(&mut network, ms(100));
    network.packet(server, &inner_packet(b"to upstream"), 0);
    upstream.send(&mut network, &inner_packet(b"from upstream"));
    upstream.run(&mut network, ms(100));

    assert_eq!(network.peer(server).kind, Kind::Upstream);
    assert_eq!(network.peer(server).connection, ConnectionState::Connected);
    assert_eq!(upstream.received, [inner_packet(b"to upstream")]);
    assert_eq!(network.payloads(server), [b"from upstream"]);
    let pong = &upstream.pongs[0];
    assert_eq!(pong["clusterID"], "server");
    assert_eq!(pong["timeStamp"], "2026-11-21T10:00:00.5Z");
    assert_eq!(pong["replica"], "server-0");
}

#[test]
fn an_upstream_client_renews_its_keys_with_any_index() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let to = network.address(server);
    let mut upstream = Upstream::new(CLIENT_KEY, SERVER_KEY, elsewhere());

    for round in 0..6_u8 {
        upstream.initiate(&mut network, to);
        upstream.run(&mut network, ms(100));
        upstream.ping(&mut network);
        upstream.run(&mut network, secs(20));
        network.packet(server, &inner_packet(&[round]), 0);
        upstream.run(&mut network, ms(100));

        assert_eq!(upstream.received.pop(), Some(inner_packet(&[round])));
        assert_eq!(network.peer(server).sessions.len(), 1);
    }
}

#[test]
fn an_upstream_client_from_elsewhere_replaces_its_session() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let to = network.address(server);
    let mut upstream = Upstream::new(CLIENT_KEY, SERVER_KEY, elsewhere());
    upstream.initiate(&mut network, to);
    upstream.run(&mut network, ms(100));
    upstream.ping(&mut network);
    upstream.run(&mut network, secs(1));

    upstream.address = "203.0.113.99:4500".parse().unwrap();
    upstream.initiate(&mut network, to);
    upstream.run(&mut network, ms(100));
    for flow in 0..32 {
        network.packet(server, &inner_packet(b"x"), flow * 0x0101_0101);
    }
    upstream.run(&mut network, ms(100));

    assert_eq!(upstream.received.len(), 32, "all flows, one session");
    upstream.run(&mut network, secs(30));
    assert_eq!(network.peer(server).sessions.len(), 1);
}

#[test]
fn a_client_of_ours_keeps_one_session_with_an_upstream_server() {
    let (mut network, mut upstream, clients) = upstream_server(&["client-0"]);

    upstream.run(&mut network, secs(30));
    network.packet(clients[0], &inner_packet(b"to upstream"), 0);
    upstream.send(&mut network, &inner_packet(b"from upstream"));
    upstream.run(&mut network, ms(100));

    let peer = network.peer(clients[0]);
    assert_eq!(peer.kind, Kind::Upstream);
    assert_eq!(peer.connection, ConnectionState::Connected);
    assert_eq!(peer.sessions.len(), 1);
    assert_eq!(peer.sessions[0].mtu, MTU, "its path is not probed");
    assert_eq!(upstream.handshakes, 1);
    assert_eq!(upstream.received, [inner_packet(b"to upstream")]);
    assert_eq!(network.payloads(clients[0]), [b"from upstream"]);
}

#[test]
fn one_replica_serves_an_upstream_server_and_the_other_takes_over() {
    let replicas = ["client-0", "client-1"];
    let (mut network, mut upstream, clients) = upstream_server(&replicas);
    upstream.run(&mut network, secs(30));

    let serving: Vec<_> = clients.iter().filter(|c| network.reachable(**c)).collect();
    let &[&server] = serving.as_slice() else {
        panic!("one of them: {serving:?}");
    };
    let other = clients[usize::from(server == clients[0])];
    assert!(network.peer(server).served && !network.peer(other).served);
    assert_eq!(network.peer(other).sessions.len(), 0);
    assert_eq!(network.hosts[other].ports.len(), 1);
    network.packet(server, &inner_packet(b"served"), 0);
    upstream.run(&mut network, ms(100));
    assert_eq!(upstream.received, [inner_packet(b"served")]);

    network.hosts[server].alive = false;
    network.set_replicas(other, &[replicas[other]]);
    upstream.run(&mut network, ms(100));

    assert!(network.reachable(other));
}

#[test]
fn a_session_that_another_replica_took_recovers() {
    let (mut network, mut upstream, clients) = upstream_server(&["client-0"]);
    upstream.run(&mut network, secs(10));

    // Another replica completes a handshake. Upstream then has keys that the first replica does not
    // have.
    let mut intruder = Tunnel::new(
        &LocalKey::new(&CLIENT_KEY.into()),
        noise::public_key(&SERVER_KEY.into()),
        77,
    );
    let mut buffer = [0; HANDSHAKE_BUFFER];
    let len = intruder.initiate(&mut buffer).unwrap();
    let from = network.address(clients[0]);
    let endpoint = upstream.endpoint;
    network.send(from, elsewhere(), buffer[..len].to_vec(), false);
    network.run(ms(5));
    for datagram in std::mem::take(&mut network.unrouted) {
        upstream.handle(&mut network, datagram);
    }
    let response = network.in_flight.pop_back().unwrap();
    let mut out = [0; 256];
    let Ok(Opened::Established(len)) = intruder.open(&response.bytes, &mut out) else {
        panic!("expected a handshake");
    };
    network.send(from, elsewhere(), out[..len].to_vec(), false);
    upstream.run(&mut network, ms(20));
    upstream.endpoint = endpoint;
    upstream.send(&mut network, &inner_packet(b"unreadable"));
    upstream.run(&mut network, ms(100));
    upstream.send(&mut network, &inner_packet(b"readable"));
    upstream.run(&mut network, ms(100));

    assert_eq!(network.payloads(clients[0]), [b"readable"]);
    assert_eq!(upstream.handshakes, 3);
}

#[test]
fn a_silent_upstream_server_is_an_error_after_ten_seconds() {
    let (mut network, mut upstream, clients) = upstream_server(&["client-0"]);
    upstream.run(&mut network, secs(10));
    network.events(clients[0]);

    upstream.replies = false;
    upstream.run(&mut network, secs(7));
    assert_eq!(
        network.peer(clients[0]).connection,
        ConnectionState::Connected
    );
    upstream.run(&mut network, secs(9));

    assert_eq!(network.peer(clients[0]).connection, ConnectionState::Error);
    assert!(network.events(clients[0]).contains(&Event::Connection {
        peer: PEER,
        state: ConnectionState::Error,
        latency: None
    }));

    upstream.replies = true;
    upstream.run(&mut network, secs(8));
    assert_eq!(
        network.peer(clients[0]).connection,
        ConnectionState::Connected
    );
}

#[test]
fn plain_wireguard_without_any_probe_is_served() {
    let (mut network, mut upstream, clients) = upstream_server(&["client-0"]);
    upstream.replies = false;

    for n in 0..300_u32 {
        upstream.run(&mut network, secs(1));
        network.packet(clients[0], &inner_packet(&n.to_be_bytes()), 0);
    }
    upstream.run(&mut network, ms(100));

    assert_eq!(upstream.received.len(), 300);
    let peer = network.peer(clients[0]);
    assert_eq!(peer.kind, Kind::Unknown);
    assert_eq!(peer.connection, ConnectionState::Connecting);
    assert!(upstream.handshakes >= 2, "renewed");
    let probes = network.sent / 300;
    assert!(probes <= 4, "{probes} datagrams a second");
}
