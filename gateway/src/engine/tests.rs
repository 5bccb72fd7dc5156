//! Runs engines in one process, under virtual time, over a simulated network.

mod adversary;
mod budgets;
mod chaos;
mod connection;
mod first_release;
mod lanes;
mod leave;
mod load;
mod path;
mod places;
mod reload;
mod replicas;
mod roaming;
mod sessions;
mod upstream;

use super::*;
use mock_instant::MockClock;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// The UDP port on which all gateways listen.
const PORT: u16 = 51_840;
/// First port of a host's client sessions.
const CLIENT_PORTS: u16 = 20_000;
/// Client ports per lane of a host.
const PORTS_PER_LANE: u16 = 1_000;
/// Length of the outer IPv4 and UDP headers, in bytes.
const OUTER_HEADERS: usize = 28;
const MTU: u16 = 1_340;
/// Peer index of the other cluster in every engine.
const PEER: u16 = 1;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// A gateway replica with one lane, or one lane of a replica. Lanes of a replica share the address.
struct Host {
    ip: Ipv4Addr,
    engine: Engine,
    /// False for a dead host, which neither sends nor receives, and whose timers stop.
    alive: bool,
    ports: BTreeSet<PortId>,
    received: Vec<(u16, Vec<u8>)>,
    events: Vec<Event>,
}

/// A load balancer with connection tracking: one address for several hosts.
struct Balancer {
    address: SocketAddr,
    hosts: Vec<usize>,
    /// False for a dead balancer, which drops all datagrams.
    alive: bool,
    /// Varies the choice of the host for each new source address.
    seed: usize,
    tracked: BTreeMap<SocketAddr, usize>,
}

#[derive(Clone)]
struct Datagram {
    due: Instant,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
    dont_fragment: bool,
}

struct Network {
    start: Instant,
    now: Instant,
    hosts: Vec<Host>,
    balancers: Vec<Balancer>,
    in_flight: VecDeque<Datagram>,
    /// All sent datagrams; `None` unless a test records them.
    capture: Option<Vec<Datagram>>,
    latency: Duration,
    /// Path MTU in bytes. Longer outer packets are dropped without an ICMP error.
    mtu: Option<usize>,
    /// Drops every n-th datagram.
    lose_every: Option<usize>,
    /// Drops datagrams to this address.
    unreachable: Option<Ipv4Addr>,
    sent: usize,
    /// Datagrams to addresses without a host.
    unrouted: Vec<Datagram>,
}

impl Network {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            start: now,
            now,
            hosts: Vec::new(),
            balancers: Vec::new(),
            in_flight: VecDeque::new(),
            capture: None,
            latency: ms(5),
            mtu: None,
            lose_every: None,
            unreachable: None,
            sent: 0,
            unrouted: Vec::new(),
        }
    }

    /// Creates two clusters of one replica each. Host 0 is the server, host 1 the client.
    fn pair() -> Self {
        let mut network = Self::new();
        let server = network.host("server-0");
        let client = network.host("client-0");
        let address = network.address(server);
        network.set_peers(server, vec![serving()]);
        network.set_peers(client, vec![calling(&[address])]);
        network
    }

    fn host(&mut self, replica: &str) -> usize {
        let number = u8::try_from(self.hosts.len()).unwrap();
        let ip = Ipv4Addr::new(192, 0, 2, number + 1);
        self.lane(replica, LaneId::ONLY, ip)
    }

    fn engine(&self, replica: &str, lane: LaneId) -> Engine {
        let mut seed = [0; 32];
        seed[..replica.len()].copy_from_slice(replica.as_bytes());
        seed[30] = lane.number();
        seed[31] = u8::try_from((self.now - self.start).as_millis() % 251).unwrap();
        let local = Local {
            cluster_id: replica.split('-').next().unwrap().to_owned(),
            replica: replica.to_owned(),
            lane,
            version: "1.0.0".into(),
            idle_probe_interval: ms(500),
        };
        let clock = Clock {
            instant: self.now,
            unix: secs(1_790_000_000) + (self.now - self.start),
        };
        Engine::new(local, seed, clock)
    }

    fn address(&self, host: usize) -> SocketAddr {
        SocketAddrV4::new(self.hosts[host].ip, PORT).into()
    }

    fn balancer(&mut self, hosts: &[usize]) -> SocketAddr {
        let number = u8::try_from(self.balancers.len()).unwrap();
        let address = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, number + 1), PORT).into();
        self.balancers.push(Balancer {
            address,
            hosts: hosts.to_vec(),
            alive: true,
            seed: 0,
            tracked: BTreeMap::new(),
        });
        address
    }

    fn set_peers(&mut self, host: usize, peers: Vec<PeerConfig>) {
        let now = self.now;
        self.hosts[host].engine.set_peers(peers, now);
        self.drain(host);
    }

    fn set_replicas(&mut self, host: usize, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let now = self.now;
        self.hosts[host].engine.set_replicas(names, now);
        self.drain(host);
    }

    /// Replaces the engine of a host by a new one, like a restart of the process.
    fn restart(&mut self, host: usize, replica: &str, peers: Vec<PeerConfig>) {
        self.hosts[host].engine = self.engine(replica, LaneId::ONLY);
        self.hosts[host].ports = BTreeSet::from([PortId::LISTEN]);
        self.hosts[host].alive = true;
        self.set_peers(host, peers);
    }

    /// Advances time by `duration`, and handles all datagrams and timeouts that are due.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let deadlines = self.hosts.iter().filter(|host| host.alive);
            let next = deadlines
                .map(|host| host.engine.poll_timeout())
                .chain(self.in_flight.iter().map(|datagram| datagram.due))
                .min();
            // `next` is `None` if no host is alive and no datagram is in flight.
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.advance_to(next);
            self.deliver();
            for host in 0..self.hosts.len() {
                if self.hosts[host].alive && self.hosts[host].engine.poll_timeout() <= self.now {
                    let now = self.now;
                    self.hosts[host].engine.handle_timeout(now);
                    self.drain(host);
                }
            }
        }
        self.advance_to(end);
    }

    /// Advances time until `condition` holds, and returns the elapsed time.
    #[track_caller]
    fn run_until(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) -> Duration {
        let from = self.now;
        while !condition(self) {
            assert!(self.now - from < limit, "not within {limit:?}");
            self.run(ms(5));
        }
        self.now - from
    }

    fn advance_to(&mut self, to: Instant) {
        if to > self.now {
            MockClock::advance(to - self.now);
            self.now = to;
        }
    }

    fn deliver(&mut self) {
        while let Some(position) = self.in_flight.iter().position(|d| d.due <= self.now) {
            let mut datagram = self.in_flight.remove(position).unwrap();
            let target = match self.balance(&datagram) {
                Some(host) => Some((self.listening(host, &datagram.bytes), PortId::LISTEN)),
                None => self.socket(datagram.to, &datagram.bytes),
            };
            match target {
                Some((host, port)) if self.hosts[host].alive => {
                    self.receive(host, port, datagram.from, &mut datagram.bytes);
                }
                Some(_) => {}
                None => self.unrouted.push(datagram),
            }
        }
    }

    /// Passes a datagram to a host, as the UDP socket would.
    fn receive(&mut self, host: usize, port: PortId, from: SocketAddr, bytes: &mut [u8]) {
        let mut out = vec![0; bytes.len().max(256)];
        let now = self.now;
        let engine = &mut self.hosts[host].engine;
        if let Received::Packet { peer, len } =
            engine.handle_datagram(port, from, bytes, &mut out, now)
        {
            self.hosts[host].received.push((peer, out[..len].to_vec()));
        }
        self.drain(host);
    }

    /// Returns the host to which a load balancer sends a datagram. All datagrams of a source
    /// address go to the same host.
    fn balance(&mut self, datagram: &Datagram) -> Option<usize> {
        let balancer = self
            .balancers
            .iter_mut()
            .find(|b| b.address == datagram.to)?;
        let host = *balancer.tracked.entry(datagram.from).or_insert_with(|| {
            balancer.seed += 1;
            let random = balancer.seed.wrapping_mul(0x9e37_79b9) >> 16;
            balancer.hosts[random % balancer.hosts.len()]
        });
        Some(host)
    }

    fn socket(&self, to: SocketAddr, bytes: &[u8]) -> Option<(usize, PortId)> {
        let first = self.hosts.iter().position(|host| host.ip == to.ip())?;
        let (host, port) = match to.port() {
            PORT => (self.listening(first, bytes), PortId::LISTEN),
            port => {
                let port = port.checked_sub(CLIENT_PORTS)?;
                let host = first + usize::from(port / PORTS_PER_LANE);
                (host, PortId(u32::from(port % PORTS_PER_LANE)))
            }
        };
        self.hosts[host]
            .ports
            .contains(&port)
            .then_some((host, port))
    }

    /// Drains the engine as the shell does.
    fn drain(&mut self, host: usize) {
        let mut out = vec![0; 70_000];
        loop {
            while let Some(transmit) = self.hosts[host].engine.poll_transmit() {
                let (port, to) = (transmit.port, transmit.to);
                self.transmit(host, port, to, transmit.datagram, transmit.dont_fragment);
            }
            while let Some(sealed) = self.hosts[host].engine.poll_queued(&mut out) {
                let bytes = out[..sealed.len].to_vec();
                self.transmit(host, sealed.port, sealed.to, bytes, false);
            }
            let Some(event) = self.hosts[host].engine.poll_event() else {
                break;
            };
            let now = self.now;
            let number = host;
            let host = &mut self.hosts[number];
            match &event {
                Event::OpenPort(port) => {
                    assert!(host.ports.insert(*port), "opened twice");
                    host.engine.handle_port_opened(*port, now);
                }
                Event::ClosePort(port) => assert!(host.ports.remove(port), "closed twice"),
                Event::Resolve { .. }
                | Event::Connection { .. }
                | Event::Remote { .. }
                | Event::HandshakeEvidence { .. }
                | Event::Reachable { .. }
                | Event::Initiation { .. }
                | Event::Drained => {}
            }
            host.events.push(event.clone());
            self.update_siblings(number, &event);
        }
    }

    fn transmit(
        &mut self,
        host: usize,
        port: PortId,
        to: SocketAddr,
        bytes: Vec<u8>,
        dont_fragment: bool,
    ) {
        assert!(self.hosts[host].ports.contains(&port), "{port:?} is closed");
        let number = match port {
            PortId::LISTEN => PORT,
            PortId(port) => {
                let lane = u16::from(self.hosts[host].engine.lane().number());
                CLIENT_PORTS + lane * PORTS_PER_LANE + u16::try_from(port).unwrap()
            }
        };
        let mut from = SocketAddrV4::new(self.hosts[host].ip, number).into();
        if let Some(balancer) = self.balancers.iter().find(|b| {
            let tracked = b.tracked.get(&to).map(|it| self.hosts[*it].ip);
            port == PortId::LISTEN && tracked == Some(self.hosts[host].ip)
        }) {
            from = balancer.address;
        }
        self.send(from, to, bytes, dont_fragment);
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>, dont_fragment: bool) {
        let datagram = Datagram {
            due: self.now + self.latency,
            from,
            to,
            bytes,
            dont_fragment,
        };
        if let Some(capture) = &mut self.capture {
            capture.push(datagram.clone());
        }
        self.sent += 1;
        let too_long = |mtu| datagram.bytes.len() + OUTER_HEADERS > mtu;
        let unlucky = |every| self.sent.is_multiple_of(every);
        let passes_dead = self
            .balancers
            .iter()
            .any(|b| !b.alive && [from, to].contains(&b.address));
        let is_lost = passes_dead
            || self.unreachable.is_some_and(|ip| to.ip() == ip)
            || self.mtu.is_some_and(too_long)
            || self.lose_every.is_some_and(unlucky);
        if !is_lost {
            self.in_flight.push_back(datagram);
        }
    }

    /// Sends a packet from a host to its peer as the shell does.
    fn packet(&mut self, host: usize, packet: &[u8], flow: u32) {
        let now = self.now;
        let engine = &mut self.hosts[host].engine;
        let Some(session) = engine.select(PEER, flow, Ipv4Addr::UNSPECIFIED) else {
            engine.queue(PEER, packet, now);
            return self.drain(host);
        };
        let mut out = vec![0; packet.len() + 32];
        let (port, to) = engine.destination(session).unwrap();
        if let Some(len) = engine.seal(session, packet, &mut out) {
            out.truncate(len);
            self.transmit(host, port, to, out, false);
        }
        self.drain(host);
    }

    /// Takes the payloads of the inner packets that a host has received.
    fn payloads(&mut self, host: usize) -> Vec<Vec<u8>> {
        let received = std::mem::take(&mut self.hosts[host].received);
        received
            .into_iter()
            .map(|(_, p)| p[20..].to_vec())
            .collect()
    }

    fn drops(&self, host: usize, reason: Drop) -> u64 {
        self.hosts[host].engine.drops.get(reason)
    }

    fn reachable(&self, host: usize) -> bool {
        let engine = &self.hosts[host].engine;
        engine.select(PEER, 0, Ipv4Addr::UNSPECIFIED).is_some()
    }

    fn peer(&self, host: usize) -> PeerSnapshot {
        self.hosts[host].engine.snapshot(self.now).peers.remove(0)
    }

    /// Returns the names of the remote replicas with which a host has a session that flows may use.
    fn discovered(&self, host: usize) -> BTreeSet<String> {
        let sessions = self.peer(host).sessions.into_iter();
        sessions
            .filter(|session| session.state == "live" && !session.leaving)
            .filter_map(|session| session.replica)
            .collect()
    }

    /// Returns the last handshake evidence that a host has reported about its peer.
    fn evidence(&self, host: usize) -> HandshakeEvidence {
        let mut events = self.hosts[host].events.iter().rev();
        let last = events.find_map(|event| match event {
            Event::HandshakeEvidence { evidence, .. } => Some(*evidence),
            Event::OpenPort(_)
            | Event::ClosePort(_)
            | Event::Resolve { .. }
            | Event::Connection { .. }
            | Event::Remote { .. }
            | Event::Reachable { .. }
            | Event::Initiation { .. }
            | Event::Drained => None,
        });
        last.unwrap_or_default()
    }

    fn events(&mut self, host: usize) -> Vec<Event> {
        std::mem::take(&mut self.hosts[host].events)
    }
}

const SERVER_KEY: [u8; 32] = [0x51; 32];
const CLIENT_KEY: [u8; 32] = [0x63; 32];

/// Returns the server's configuration of its peer, which is the client's cluster.
fn serving() -> PeerConfig {
    PeerConfig {
        index: PEER,
        cluster_id: "client".into(),
        local_private_key: SERVER_KEY.into(),
        public_key: noise::public_key(&CLIENT_KEY.into()),
        role: Role::Server,
        mtu: MTU,
        allowed: vec!["10.244.0.0/16".parse().unwrap()],
    }
}

/// Returns the client's configuration of its peer, which is the server's cluster.
fn calling(addresses: &[SocketAddr]) -> PeerConfig {
    PeerConfig {
        index: PEER,
        cluster_id: "server".into(),
        local_private_key: CLIENT_KEY.into(),
        public_key: noise::public_key(&SERVER_KEY.into()),
        role: Role::Client {
            addresses: addresses.iter().map(|a| a.ip().to_string()).collect(),
            port: PORT,
        },
        mtu: MTU,
        allowed: vec!["10.244.0.0/16".parse().unwrap()],
    }
}

/// Returns an inner packet with `payload`. Sender and receiver have the same address, because the
/// pod CIDRs of the clusters overlap.
fn inner_packet(payload: &[u8]) -> Vec<u8> {
    inner_packet_from([10, 244, 1, 10], payload)
}

fn inner_packet_from(source: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let total = u16::try_from(20 + payload.len()).unwrap();
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0];
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet.extend(source);
    packet.extend([10, 244, 1, 10]);
    packet.extend(payload);
    packet
}
