//! Tests peers that run the first release of this project (commit ea9b234). They offer a key for
//! AES-256-GCM in their PINGs. The offer is ignored, and both sides continue with WireGuard's
//! cipher.

use super::*;
use crate::engine::inner::{Inner, Sources};
use crate::engine::noise::{HANDSHAKE_BUFFER, LocalKey, OVERHEAD, Opened, Tick, Tunnel};
use serde_json::Value;

/// Duration of the tests. It is longer than three rekey intervals of WireGuard, each of 120 s.
const MIXED_FOR: Duration = Duration::from_secs(400);
const STEP: Duration = Duration::from_millis(50);
const PING_INTERVAL: Duration = Duration::from_millis(250);
/// First bytes of a data message under the cipher of the first release. In WireGuard the second
/// byte is reserved, and must be zero.
const FIRST_RELEASE_DATA: [u8; 4] = [4, 1, 0, 0];

/// Simulates a gateway of the first release, with the messages that this release sends.
struct FirstRelease {
    is_client: bool,
    tunnel: Tunnel,
    own: SocketAddr,
    /// Address of the gateway under test; `None` until it is known.
    remote: Option<SocketAddr>,
    /// Number of the key in the current offer; `None` after a PONG.
    offer: Option<u64>,
    offers: u64,
    next_ping: Instant,
    received: Vec<Vec<u8>>,
}

impl FirstRelease {
    /// Creates a client that connects to `remote`, or a server if `remote` is `None`.
    fn new(remote: Option<SocketAddr>, now: Instant) -> Self {
        let is_client = remote.is_some();
        let (own_key, peer_key) = match is_client {
            true => (CLIENT_KEY, SERVER_KEY),
            false => (SERVER_KEY, CLIENT_KEY),
        };

        Self {
            is_client,
            tunnel: Tunnel::new(
                &LocalKey::new(&own_key.into()),
                noise::public_key(&peer_key.into()),
                0x77,
            ),
            own: server_of_first_release(),
            remote,
            offer: None,
            offers: 0,
            next_ping: now,
            received: Vec::new(),
        }
    }

    fn initiate(&mut self, network: &mut Network) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let len = self.tunnel.initiate(&mut buffer).unwrap();
        self.send(network, &buffer[..len]);
    }

    /// Advances time by [`STEP`], and handles received datagrams and due timers.
    fn step(&mut self, network: &mut Network) {
        network.run(STEP);
        for datagram in std::mem::take(&mut network.unrouted) {
            assert_eq!(datagram.bytes[1..4], [0, 0, 0], "plain WireGuard");
            self.handle(network, &datagram);
        }
        let mut buffer = [0; HANDSHAKE_BUFFER];
        match self.tunnel.tick(&mut buffer) {
            Tick::Initiation(len) if self.is_client => self.send(network, &buffer[..len]),
            Tick::Keepalive(len) => self.send(network, &buffer[..len]),
            Tick::Initiation(_) | Tick::Nothing | Tick::Expired => {}
        }
        if self.tunnel.is_keyed() && network.now >= self.next_ping {
            self.next_ping = network.now + PING_INTERVAL;
            self.probe(network, &self.ping());
        }
    }

    fn handle(&mut self, network: &mut Network, datagram: &Datagram) {
        let mut out = vec![0; datagram.bytes.len().max(HANDSHAKE_BUFFER)];
        self.remote = Some(datagram.from);
        match self.tunnel.open(&datagram.bytes, &mut out).unwrap() {
            Opened::Packet(len) => self.handle_packet(network, &out[..len]),
            Opened::Response(len) | Opened::Established(len) => {
                self.send(network, &out[..len]);
                self.offers += 1;
                self.offer = Some(1_795_252_800_000_000_000 + self.offers);
            }
            Opened::Keepalive | Opened::Cookie => {}
        }
    }

    fn handle_packet(&mut self, network: &mut Network, packet: &[u8]) {
        let sources = Sources::new(&["10.244.0.0/16".parse().unwrap()]);
        match inner::check(packet, &sources).unwrap() {
            Inner::Forward => self.received.push(packet[20..].to_vec()),
            Inner::Probe(json) => {
                let probe: Value = serde_json::from_slice(&packet[json]).unwrap();
                assert_eq!(probe["gateway"]["data"], Value::Null, "no key: {probe}");
                assert_eq!(probe["data"], Value::Null, "no reply to a key: {probe}");
                if probe["msgType"] == "PONG" {
                    self.offer = None;
                } else {
                    self.probe(network, &pong(&probe));
                }
            }
        }
    }

    fn ping(&self) -> String {
        let name = if self.is_client { "client" } else { "server" };
        let remote = if self.is_client { "server" } else { "client" };
        let offer = self.offer.map_or_else(String::new, |number| {
            let key = "5a".repeat(32);
            format!(
                r#","data":{{"cipher":"aes-256-gcm","index":30465,"key":"{key}","number":{number}}}"#
            )
        });

        format!(
            r#"{{"clusterID":"{remote}","msgType":"PING","timeStamp":"2026-11-23T09:00:00.000000001Z","gateway":{{"replica":"{name}-9","version":"0.9.0"{offer}}}}}"#
        )
    }

    fn probe(&mut self, network: &mut Network, json: &str) {
        let (from, to) = match self.is_client {
            true => (inner::CLIENT, inner::SERVER),
            false => (inner::SERVER, inner::CLIENT),
        };
        let packet = inner::probe_packet(from, (to, inner::PROBE_PORT), json.as_bytes());
        self.packet(network, &packet);
    }

    fn packet(&mut self, network: &mut Network, packet: &[u8]) {
        let mut out = vec![0; packet.len() + OVERHEAD];
        let len = self.tunnel.seal(packet, &mut out).unwrap();
        self.send(network, &out[..len]);
    }

    fn send(&self, network: &mut Network, bytes: &[u8]) {
        let remote = self.remote.expect("the remote address is known");
        network.send(self.own, remote, bytes.to_vec(), false);
    }
}

/// Returns the PONG of the first release to a PING of the gateway under test.
fn pong(ping: &Value) -> String {
    let (cluster, sent) = (&ping["clusterID"], &ping["timeStamp"]);

    format!(
        r#"{{"clusterID":{cluster},"msgType":"PONG","timeStamp":{sent},"replica":"{}-9","version":"0.9.0","replicas":1}}"#,
        cluster.as_str().unwrap()
    )
}

fn server_of_first_release() -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), PORT).into()
}

/// Exchanges packets in both directions over several rekeys.
fn exchange(network: &mut Network, old: &mut FirstRelease) {
    let from = network.now;
    while !(network.reachable(0) && network.peer(0).kind == Kind::Ours) {
        assert!(network.now - from < secs(5), "no session");
        old.step(network);
    }

    let mut sent = Vec::new();
    while network.now - from < MIXED_FOR {
        let payload = u32::try_from(sent.len()).unwrap().to_be_bytes().to_vec();
        network.packet(0, &inner_packet(&payload), 0);
        old.packet(network, &inner_packet(&payload));
        sent.push(payload);
        old.step(network);
    }
    old.step(network);

    assert_eq!(network.payloads(0), sent, "every packet once, in order");
    assert_eq!(old.received, sent, "every packet once, in order");
    assert!(old.offers >= 4, "a key per handshake: {}", old.offers);
    assert_eq!(old.offer, None, "a PONG ends each offer");
    assert_eq!(network.peer(0).version.as_deref(), Some("0.9.0"));
    assert_eq!(network.peer(0).sessions.len(), 1);
    assert_eq!(network.hosts[0].engine.snapshot(network.now).drops.len(), 0);
}

#[test]
fn a_client_of_the_first_release_is_served_without_loss() {
    let mut network = Network::new();
    let server = network.host("server-0");
    network.set_peers(server, vec![serving()]);
    let mut old = FirstRelease::new(Some(network.address(server)), network.now);

    old.initiate(&mut network);
    exchange(&mut network, &mut old);
}

#[test]
fn a_server_of_the_first_release_is_used_without_loss() {
    let mut network = Network::new();
    let client = network.host("client-0");
    network.set_peers(client, vec![calling(&[server_of_first_release()])]);
    let mut old = FirstRelease::new(None, network.now);

    exchange(&mut network, &mut old);
}

#[test]
fn data_under_the_first_releases_cipher_is_dropped_as_malformed() {
    let mut network = Network::pair();
    network.run(ms(120));
    network.packet(1, &inner_packet(b"x"), 0);
    let mut datagram = network.in_flight.pop_back().unwrap();

    datagram.bytes[..4].copy_from_slice(&FIRST_RELEASE_DATA);
    network.receive(0, PortId::LISTEN, datagram.from, &mut datagram.bytes);

    assert_eq!(network.drops(0, Drop::Malformed), 1);
    assert_eq!(network.payloads(0), Vec::<Vec<u8>>::new());
}
