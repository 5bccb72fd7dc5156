//! Simulates two clusters over a network that the fuzzer controls, under virtual time. The hosts
//! are:
//!
//! ```text
//!  0: the server's gateway
//!  1: the client's gateway
//!  2: a second replica of the client's gateway, with the same key
//! ```

use crate::engine::{
    Clock, Engine, Event, LaneId, Local, PeerConfig, PortId, PrivateKey, Received, Role, public_key,
};
use mock_instant::MockClock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Peer index of the other cluster in every engine.
pub(crate) const PEER: u16 = 1;
pub(crate) const HOSTS: usize = 3;
pub(crate) const SERVER: usize = 0;

const PORT: u16 = 51_840;
/// First port of a host's client sessions.
const CLIENT_PORTS: u16 = 20_000;
const MTU: u16 = 1_340;
const LATENCY: Duration = Duration::from_millis(5);
const SERVER_KEY: [u8; 32] = [0x51; 32];
const CLIENT_KEY: [u8; 32] = [0x63; 32];

/// Maximum number of datagrams in flight. Beyond it, the oldest one is removed.
const WIRE_MAX: usize = 256;
/// Maximum number of recorded datagrams. Beyond it, the oldest one is removed.
const SEEN_MAX: usize = 64;

/// Maximum number of steps in one call of [`Network::run`] or [`Network::wait`]. A step handles the
/// timeouts and datagrams that are due at one time. The limit is exceeded only if the engines never
/// become idle.
const TIMEOUTS_MAX: usize = 10_000;

#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) due: Instant,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

struct Host {
    ip: Ipv4Addr,
    engine: Engine,
    ports: BTreeSet<PortId>,
}

/// All hosts, and the network between them.
pub(crate) struct Network {
    now: Instant,
    hosts: Vec<Host>,
    /// Datagrams in flight.
    pub(crate) wire: VecDeque<Datagram>,
    /// Datagrams that were sent before. The fuzzer injects copies of them.
    pub(crate) seen: VecDeque<Datagram>,
    /// Number of times that each inner packet was sent and has not arrived yet.
    sent: BTreeMap<Vec<u8>, u32>,
    packets: u64,
    /// Whether an engine is leaving, which is irreversible.
    pub(crate) has_left: bool,
    out: Vec<u8>,
}

impl Network {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let mut network = Self {
            now,
            hosts: Vec::new(),
            wire: VecDeque::new(),
            seen: VecDeque::new(),
            sent: BTreeMap::new(),
            packets: 0,
            has_left: false,
            out: vec![0; 70_000],
        };
        for (number, replica) in ["server-0", "client-0", "client-1"].into_iter().enumerate() {
            network.add_host(number, replica);
        }
        for host in 0..HOSTS {
            network.set_peers(host, true);
        }
        network
    }

    fn add_host(&mut self, number: usize, replica: &str) {
        let mut seed = [0; 32];
        seed[..replica.len()].copy_from_slice(replica.as_bytes());
        let cluster_id = replica.split('-').next().unwrap_or_default();
        let local = Local {
            cluster_id: cluster_id.to_owned(),
            replica: replica.to_owned(),
            lane: LaneId::ONLY,
            version: "1.0.0".into(),
            idle_probe_interval: Duration::from_millis(500),
        };
        let clock = Clock {
            instant: self.now,
            unix: Duration::from_secs(1_790_000_000),
        };
        let last = u8::try_from(number + 1).expect("a few hosts");
        self.hosts.push(Host {
            ip: Ipv4Addr::new(192, 0, 2, last),
            engine: Engine::new(local, seed, clock),
            ports: BTreeSet::from([PortId::LISTEN]),
        });
    }

    pub(crate) fn engine(&mut self, host: usize) -> (&mut Engine, Instant) {
        (&mut self.hosts[host].engine, self.now)
    }

    pub(crate) fn is_reachable(&self, host: usize) -> bool {
        self.hosts[host]
            .engine
            .select(PEER, 0, Ipv4Addr::UNSPECIFIED)
            .is_some()
    }

    /// Sets or removes the only peer of a host.
    pub(crate) fn set_peers(&mut self, host: usize, has_peer: bool) {
        let is_server = host == SERVER;
        let (own, others) = if is_server {
            (SERVER_KEY, CLIENT_KEY)
        } else {
            (CLIENT_KEY, SERVER_KEY)
        };
        let config = PeerConfig {
            index: PEER,
            cluster_id: if is_server { "client" } else { "server" }.into(),
            local_private_key: private_key(own),
            public_key: public_key(&private_key(others)),
            role: if is_server {
                Role::Server
            } else {
                Role::Client {
                    addresses: vec![self.hosts[SERVER].ip.to_string()],
                    port: PORT,
                }
            },
            mtu: MTU,
            allowed: vec!["10.244.0.0/16".parse().expect("a prefix")],
        };
        let peers = has_peer.then_some(config).into_iter().collect();
        let now = self.now;
        self.hosts[host].engine.set_peers(peers, now);
        self.drain(host);
    }

    /// Advances time by `duration`, and delivers all datagrams that are due.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..TIMEOUTS_MAX {
            let deadlines = self.hosts.iter().map(|host| host.engine.poll_timeout());
            let dues = self.wire.iter().map(|datagram| datagram.due);
            let Some(next) = deadlines.chain(dues).min().filter(|next| *next <= end) else {
                return self.advance_to(end);
            };
            self.advance_to(next);
            while self.wire.front().is_some_and(|first| first.due <= self.now) {
                self.deliver(0);
            }
            self.handle_timeouts();
        }
        panic!("the engines never become idle");
    }

    /// Advances time by `duration`, and delivers no datagrams.
    pub(crate) fn wait(&mut self, duration: Duration) {
        let end = self.now + duration;
        for _ in 0..TIMEOUTS_MAX {
            let deadlines = self.hosts.iter().map(|host| host.engine.poll_timeout());
            let Some(next) = deadlines.min().filter(|next| *next <= end) else {
                return self.advance_to(end);
            };
            self.advance_to(next);
            self.handle_timeouts();
        }
        panic!("the engines never become idle");
    }

    fn advance_to(&mut self, to: Instant) {
        if to > self.now {
            MockClock::advance(to - self.now);
            self.now = to;
        }
    }

    fn handle_timeouts(&mut self) {
        for number in 0..HOSTS {
            let now = self.now;
            if self.hosts[number].engine.poll_timeout() <= now {
                self.hosts[number].engine.handle_timeout(now);
                self.drain(number);
            }
        }
    }

    /// Delivers the datagram at this position of `wire`, if the destination has an open socket.
    pub(crate) fn deliver(&mut self, place: usize) {
        let Some(mut datagram) = self.wire.remove(place) else {
            return;
        };
        if let Some((host, port)) = self.socket(datagram.to) {
            self.receive(host, port, datagram.from, &mut datagram.bytes);
        }
    }

    pub(crate) fn socket(&self, to: SocketAddr) -> Option<(usize, PortId)> {
        let host = (self.hosts.iter()).position(|host| IpAddr::V4(host.ip) == to.ip())?;
        let port = match to.port() {
            PORT => PortId::LISTEN,
            port => PortId(u32::from(port.checked_sub(CLIENT_PORTS)?)),
        };

        self.hosts[host]
            .ports
            .contains(&port)
            .then_some((host, port))
    }

    /// Passes a datagram to a host, as the UDP socket would. Checks that a decrypted inner packet
    /// was sent, and was not delivered before.
    pub(crate) fn receive(
        &mut self,
        host: usize,
        port: PortId,
        from: SocketAddr,
        bytes: &mut [u8],
    ) {
        let now = self.now;
        let room = bytes.len().max(256);
        let engine = &mut self.hosts[host].engine;
        let received = engine.handle_datagram(port, from, bytes, &mut self.out[..room], now);
        if let Received::Packet { peer, len } = received {
            assert_eq!(peer, PEER, "no such peer");
            let left = self.sent.get_mut(&self.out[..len]);
            let left = left.expect("the packet is forged");
            *left = left.checked_sub(1).expect("the packet was replayed");
        }
        self.drain(host);
    }

    /// Sends a unique packet from a host to its peer.
    pub(crate) fn send(&mut self, host: usize, len: usize) {
        self.packets += 1;
        let mut payload = self.packets.to_be_bytes().to_vec();
        payload.resize(len.max(payload.len()), 0x5a);
        self.send_packet(
            host,
            &inner([10, 244, 1, 10], [10, 244, 1, 10], 253, &payload),
        );
    }

    /// Sends a packet from a host to its peer as the shell would.
    pub(crate) fn send_packet(&mut self, host: usize, packet: &[u8]) {
        *self.sent.entry(unpadded(packet).to_vec()).or_default() += 1;
        let now = self.now;
        let engine = &mut self.hosts[host].engine;
        let Some(session) = engine.select(PEER, 0, Ipv4Addr::UNSPECIFIED) else {
            engine.queue(PEER, packet, now);
            return self.drain(host);
        };
        let mut out = vec![0; packet.len() + 32];
        let destination = engine.destination(session);
        if let (Some((port, to)), Some(len)) = (destination, engine.seal(session, packet, &mut out))
        {
            out.truncate(len);
            self.transmit(host, port, to, out);
        }
        self.drain(host);
    }

    /// Drains the output of an engine, as the shell does after each input.
    pub(crate) fn drain(&mut self, number: usize) {
        let mut out = std::mem::take(&mut self.out);
        loop {
            while let Some(transmit) = self.hosts[number].engine.poll_transmit() {
                self.transmit(number, transmit.port, transmit.to, transmit.datagram);
            }
            while let Some(sealed) = self.hosts[number].engine.poll_queued(&mut out) {
                self.transmit(number, sealed.port, sealed.to, out[..sealed.len].to_vec());
            }
            let Some(event) = self.hosts[number].engine.poll_event() else {
                break;
            };
            let now = self.now;
            let host = &mut self.hosts[number];
            if let Event::OpenPort(port) = event {
                assert!(host.ports.insert(port), "opened twice");
                host.engine.handle_port_opened(port, now);
            } else if let Event::ClosePort(port) = event {
                assert!(host.ports.remove(&port), "closed twice");
            }
        }
        self.out = out;
    }

    fn transmit(&mut self, host: usize, port: PortId, to: SocketAddr, bytes: Vec<u8>) {
        let Host { ip, ports, .. } = &self.hosts[host];
        assert!(ports.contains(&port), "{port:?} is closed");
        let number = if port == PortId::LISTEN {
            PORT
        } else {
            CLIENT_PORTS.wrapping_add(u16::try_from(port.0 % 40_000).unwrap_or_default())
        };
        let datagram = Datagram {
            due: self.now + LATENCY,
            from: (*ip, number).into(),
            to,
            bytes,
        };
        for (list, limit) in [(&mut self.wire, WIRE_MAX), (&mut self.seen, SEEN_MAX)] {
            list.push_back(datagram.clone());
            if list.len() > limit {
                list.pop_front();
            }
        }
    }
}

fn private_key(bytes: [u8; 32]) -> PrivateKey {
    PrivateKey::from_slice(&bytes).expect("32 bytes")
}

/// Returns an IPv4 packet without the bytes after its total length. The receiver removes them, because
/// they could be the padding that WireGuard adds before encryption (WireGuard paper, section 5.4.6).
fn unpadded(packet: &[u8]) -> &[u8] {
    let total = packet
        .get(2..4)
        .map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let end = total.map_or(packet.len(), usize::from);

    packet.get(..end).unwrap_or(packet)
}

/// Builds an IPv4 packet without options.
pub(crate) fn inner(
    source: [u8; 4],
    destination: [u8; 4],
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX);
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(source);
    packet.extend(destination);
    packet.extend(payload);
    packet
}
