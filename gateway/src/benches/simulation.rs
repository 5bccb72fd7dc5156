//! A simulation of a gateway and its peers, with a mock clock and without sockets.
//!
//! Each peer is the engine of another gateway.

use crate::engine::{
    Clock, Engine, Event, LaneId, Local, PeerConfig, PortId, PrivateKey, Received, Role, Transmit,
    public_key,
};
use mock_instant::MockClock;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

const PORT: u16 = 51_840;

/// Time between sending and receiving a datagram.
const LATENCY: Duration = Duration::from_millis(5);

/// Limit of the simulated time in which all peers must connect.
const DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Simulation {
    pub(crate) gateway: Engine,
    pub(crate) now: Instant,
    start: Instant,
    clients: Vec<Client>,
    /// Datagrams that were sent and not yet received.
    flying: VecDeque<Flying>,
    /// CPU time of the gateway, without the CPU time of its peers.
    pub(crate) busy: Duration,
    buffer: Vec<u8>,
}

/// A simulated peer. The peer has the client role, and the gateway has the server role.
struct Client {
    engine: Engine,
    port: PortId,
    /// Whether the client's engine reports the gateway as reachable.
    reaches: bool,
}

struct Flying {
    due: Instant,
    /// Index of the client that sends or receives the datagram.
    client: usize,
    to_gateway: bool,
    datagram: Vec<u8>,
}

impl Simulation {
    /// Creates a gateway with `peers` peers that have not started a handshake.
    pub(crate) fn new(peers: u16) -> Self {
        let now = Instant::now();
        let mut gateway = engine("home", now, now);
        gateway.set_peers((0..peers).map(|peer| serving(peer, 1)).collect(), now);
        let clients = (0..peers).map(|peer| {
            let mut engine = engine(&format!("cluster-{peer:05}"), now, now);
            engine.set_peers(vec![calling(peer)], now);
            Client {
                engine,
                port: PortId::LISTEN,
                reaches: false,
            }
        });

        Self {
            gateway,
            now,
            start: now,
            clients: clients.collect(),
            flying: VecDeque::new(),
            busy: Duration::ZERO,
            buffer: vec![0; 70_000],
        }
    }

    /// Creates a gateway with `peers` connected peers.
    pub(crate) fn connected(peers: u16) -> Self {
        let mut simulation = Self::new(peers);
        simulation.connect();
        simulation
    }

    /// Advances the clock until all peers have a session; returns the simulated time that this
    /// took.
    pub(crate) fn connect(&mut self) -> Duration {
        let from = self.now;
        while !self.clients.iter().all(|client| client.reaches) {
            assert!(self.now - from < DEADLINE, "all peers have a session");
            self.run(LATENCY);
        }
        // The gateway is the responder of each handshake. WireGuard's responder must not send data
        // before it has received the first packet of the session, so wait for this packet.
        self.run(2 * LATENCY);

        self.now - from
    }

    /// Replaces the gateway's engine by an engine without sessions. The peers keep their sessions.
    pub(crate) fn restart(&mut self) {
        let peers = u16::try_from(self.clients.len()).expect("peers have 16 bits");
        self.flying.clear();
        self.gateway = engine("home", self.now, self.start);
        let peers = (0..peers).map(|peer| serving(peer, 1)).collect();
        let now = self.now;
        let started = cpu_time::now();
        self.gateway.set_peers(peers, now);
        self.busy = cpu_time::now() - started;
        for client in &mut self.clients {
            client.reaches = false;
        }
    }

    /// Advances the clock by `duration`, then delivers all due datagrams and handles all timeouts.
    pub(crate) fn run(&mut self, duration: Duration) {
        MockClock::advance(duration);
        self.now += duration;
        let now = self.now;
        while self.flying.front().is_some_and(|flying| flying.due <= now) {
            let flying = self.flying.pop_front().expect("the queue has a front");
            self.deliver(flying);
        }
        let started = cpu_time::now();
        self.gateway.handle_timeout(now);
        self.busy += cpu_time::now() - started;
        self.drain_gateway();
        for client in 0..self.clients.len() {
            if self.clients[client].engine.poll_timeout() <= now {
                self.clients[client].engine.handle_timeout(now);
                self.drain(client);
            }
        }
    }

    /// Returns the datagram with which the client `peer` sends `packet` to the gateway.
    pub(crate) fn datagram_from(&mut self, peer: u16, packet: &[u8]) -> Vec<u8> {
        let client = &mut self.clients[usize::from(peer)].engine;
        let session = client
            .select(0, 0, Ipv4Addr::UNSPECIFIED)
            .expect("the client is connected");
        let mut datagram = vec![0; packet.len() + 32];
        let len = client.seal(session, packet, &mut datagram);
        datagram.truncate(len.expect("the session has keys"));

        datagram
    }

    fn deliver(&mut self, mut flying: Flying) {
        let now = self.now;
        let at = flying.client;
        if flying.to_gateway {
            let started = cpu_time::now();
            self.gateway.handle_datagram(
                PortId::LISTEN,
                address(at),
                &mut flying.datagram,
                &mut self.buffer,
                now,
            );
            self.busy += cpu_time::now() - started;
            self.drain_gateway();
        } else {
            let client = &mut self.clients[at];
            let from = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), PORT));
            let (datagram, out) = (&mut flying.datagram, &mut self.buffer);
            let _: Received =
                (client.engine).handle_datagram(client.port, from, datagram, out, now);
            self.drain(at);
        }
    }

    fn drain_gateway(&mut self) {
        loop {
            let started = cpu_time::now();
            let transmit = self.gateway.poll_transmit();
            self.busy += cpu_time::now() - started;
            let Some(Transmit { to, datagram, .. }) = transmit else {
                break;
            };
            self.flying.push_back(Flying {
                due: self.now + LATENCY,
                client: number(to),
                to_gateway: false,
                datagram,
            });
        }
        while self.gateway.poll_event().is_some() {}
    }

    fn drain(&mut self, at: usize) {
        let now = self.now;
        let client = &mut self.clients[at];
        loop {
            while let Some(Transmit { datagram, .. }) = client.engine.poll_transmit() {
                self.flying.push_back(Flying {
                    due: now + LATENCY,
                    client: at,
                    to_gateway: true,
                    datagram,
                });
            }
            match client.engine.poll_event() {
                Some(Event::OpenPort(port)) => {
                    client.port = port;
                    client.engine.handle_port_opened(port, now);
                }
                Some(Event::Reachable { reachable, .. }) => client.reaches = reachable,
                Some(_) => {}
                None => break,
            }
        }
    }
}

/// Returns the configuration with which the gateway's engine serves the client `number`.
///
/// The client has `prefixes` prefixes.
pub(crate) fn serving(number: u16, prefixes: u8) -> PeerConfig {
    let prefix = |third: u8| format!("10.244.{third}.0/24").parse().expect("a CIDR");

    PeerConfig {
        index: number,
        cluster_id: format!("cluster-{number:05}"),
        local_private_key: own_key(number),
        public_key: public_key(&key(number)),
        role: Role::Server,
        mtu: 1_340,
        allowed: (0..prefixes).map(prefix).collect(),
    }
}

/// Returns the configuration with which the engine of the client `number` connects to the gateway.
fn calling(number: u16) -> PeerConfig {
    PeerConfig {
        index: 0,
        cluster_id: "home".to_owned(),
        local_private_key: key(number),
        public_key: public_key(&own_key(number)),
        role: Role::Client {
            addresses: vec!["192.0.2.1".to_owned()],
            port: PORT,
        },
        mtu: 1_340,
        allowed: vec!["10.244.0.0/16".parse().expect("a CIDR")],
    }
}

fn engine(cluster_id: &str, now: Instant, start: Instant) -> Engine {
    let local = Local {
        cluster_id: cluster_id.to_owned(),
        replica: format!("{cluster_id}-0"),
        lane: LaneId::ONLY,
        version: "1.0.0".to_owned(),
        idle_probe_interval: Duration::from_millis(500),
    };
    let mut seed = [0x5a; 32];
    seed[..cluster_id.len()].copy_from_slice(cluster_id.as_bytes());
    seed[31] = (now - start).as_millis().to_le_bytes()[0];
    let clock = Clock {
        instant: now,
        unix: Duration::from_secs(1_790_000_000) + (now - start),
    };

    Engine::new(local, seed, clock)
}

/// Returns the gateway's private key for one peer. Liqo generates a separate key for each peering.
fn own_key(number: u16) -> PrivateKey {
    key_of(0x51, number)
}

/// Returns the private key of client `number`.
fn key(number: u16) -> PrivateKey {
    key_of(0x63, number)
}

pub(super) fn key_of(owner: u8, number: u16) -> PrivateKey {
    let mut key = [owner; PrivateKey::LEN];
    key[..2].copy_from_slice(&number.to_be_bytes());

    PrivateKey::from_slice(&key).expect("the array has the length of a key")
}

/// Returns the address of a client: 100.64.0.0 plus its index, port 4000.
pub(crate) fn address(client: usize) -> SocketAddr {
    let number = u32::try_from(client).expect("peers have 16 bits");

    (Ipv4Addr::from_bits(0x6440_0000 + number), 4_000).into()
}

fn number(address: SocketAddr) -> usize {
    match address {
        SocketAddr::V4(address) => (address.ip().to_bits() - 0x6440_0000) as usize,
        SocketAddr::V6(_) => unreachable!("all clients have IPv4 addresses"),
    }
}
