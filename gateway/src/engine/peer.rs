//! One remote cluster: configuration, sessions, and state learned from its probes.

use super::client::Client;
use super::handshake_evidence;
use super::inner::{self, Sources};
use super::interface::{ConnectionState, Event, Kind, Nodes, PeerConfig, Role, SessionId};
use super::noise::{LocalKey, SharedSecret};
use super::place::Placements;
use super::timestamps::Timestamps;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Interval at which the latency of a connection is reported. It is upstream Liqo's value.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Time without a session that receives PONGs after which a connection is reported as an error. It is longer than a
/// failover to a session that exists. Endpoints of the peer must not be ready 2 s after its loss, of which the second
/// missing PONG takes at most 0.75 s.
const CONNECTION_HOLD: Duration = Duration::from_millis(800);

/// Upper limit of probes per peer and tick, on average: one PING and one PONG of each of 128
/// sessions. A probe costs 10 us, so the limit is 1 % of a core.
const PROBES_PER_TICK: u32 = 256;
/// Upper limit of probes per peer in one tick. It allows 16 sessions to measure the path MTU at
/// once, with up to 23 PINGs and 23 PONGs each.
pub(super) const PROBES_BURST: u32 = 768;

pub(super) struct Peer {
    pub(super) config: PeerConfig,
    /// Public key of the local key for this peer.
    pub(super) local_key: [u8; 32],
    /// Shared secret of both static keys, computed at the first initiation.
    static_shared: Option<SharedSecret>,
    pub(super) timestamps: Timestamps,
    pub(super) sources: Sources,
    pub(super) kind: Kind,
    pub(super) version: Option<String>,
    /// Kind and node health in the last report to the shell.
    pub(super) reported: Option<(Kind, Option<Nodes>)>,
    /// All sessions with the peer, oldest first.
    pub(super) sessions: Vec<SessionId>,
    /// The sessions that flows may use.
    pub(super) selectable: Vec<Candidate>,
    /// The sessions of `selectable` for packets to pods on the nodes of remote replicas.
    pub(super) placements: Placements,
    /// Whether a session with the peer has had traffic in the last seconds.
    pub(super) is_active: bool,
    pub(super) connection: Connection,
    /// Handshake messages received while there is no connection.
    pub(super) evidence: handshake_evidence::Collector,
    /// State of the client role; `None` in the server role.
    pub(super) client: Option<Client>,
    pub(super) next_tick: Instant,
    /// Probes that may be handled until the next tick, on all sessions together.
    probes_left: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) session: SessionId,
    pub(super) salt: u32,
}

impl Peer {
    pub(super) fn new(config: PeerConfig, local_key: [u8; 32], now: Instant) -> Self {
        let client = match &config.role {
            Role::Server => None,
            Role::Client { addresses, port } => Some(Client::new(addresses, *port, now)),
        };

        Self {
            sources: Sources::new(&config.allowed),
            local_key,
            static_shared: None,
            timestamps: Timestamps::default(),
            kind: Kind::Unknown,
            version: None,
            reported: None,
            sessions: Vec::new(),
            selectable: Vec::new(),
            placements: Placements::default(),
            is_active: true,
            connection: Connection::new(now),
            evidence: handshake_evidence::Collector::default(),
            client,
            next_tick: now,
            probes_left: PROBES_BURST,
            config,
        }
    }

    /// Applies a new configuration and returns true if the sessions can stay. Otherwise returns
    /// false and changes nothing.
    pub(super) fn update(&mut self, config: &PeerConfig, now: Instant) -> bool {
        let same_tunnel = self.config.cluster_id == config.cluster_id
            && self.config.local_private_key == config.local_private_key
            && self.config.public_key == config.public_key;
        match (&config.role, &mut self.client) {
            _ if !same_tunnel => return false,
            (Role::Server, None) => {}
            (Role::Client { addresses, port }, Some(client)) => {
                client.set_endpoints(addresses, *port, now);
            }
            (Role::Server, Some(_)) | (Role::Client { .. }, None) => return false,
        }

        if self.config.allowed != config.allowed {
            self.sources = Sources::new(&config.allowed);
        }
        self.config = config.clone();
        true
    }

    /// Refills the budget of probes; `next` is the time of the next tick.
    pub(super) fn handle_tick(&mut self, next: Instant) {
        self.next_tick = next;
        self.probes_left = (self.probes_left + PROBES_PER_TICK).min(PROBES_BURST);
    }

    /// Returns the Diffie-Hellman secret of the peer's static key and `local`, the local key for
    /// this peer.
    pub(super) fn static_shared(&mut self, local: &LocalKey) -> &SharedSecret {
        let remote = self.config.public_key;

        self.static_shared
            .get_or_insert_with(|| local.shared_with(remote))
    }

    /// Takes one probe from the budget; returns whether one was left.
    pub(super) fn take_probe(&mut self) -> bool {
        let is_left = self.probes_left > 0;
        self.probes_left = self.probes_left.saturating_sub(1);

        is_left
    }

    /// Returns the local and the remote address of liveness probes inside the tunnel.
    pub(super) fn probe_addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        match self.config.role {
            Role::Server => (inner::SERVER, inner::CLIENT),
            Role::Client { .. } => (inner::CLIENT, inner::SERVER),
        }
    }

    /// Returns the session of a flow to `destination` by rendezvous hashing. If a session is removed, only the flows
    /// of this session move. If a session is added, flows move only to the added session.
    ///
    /// A flow to a pod on the node of a remote replica uses a session with this replica.
    #[inline]
    pub(super) fn select(&self, flow_hash: u32, destination: u32) -> Option<SessionId> {
        let weight = |candidate: &Candidate| {
            let mixed = (flow_hash ^ candidate.salt).wrapping_mul(0x9e37_79b1);
            (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77)
        };

        let candidates = match self.placements.of(destination) {
            [] => self.selectable.as_slice(),
            placed => placed,
        };
        match candidates {
            [] => None,
            [only] => Some(only.session),
            several => several.iter().max_by_key(|c| weight(c)).map(|c| c.session),
        }
    }
}

/// State of the connection, for the status of the `Connection` object.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) state: ConnectionState,
    pub(super) latency: Option<Duration>,
    reported: Instant,
    /// Last time at which a session was usable and received PONGs.
    alive: Instant,
}

impl Connection {
    fn new(now: Instant) -> Self {
        Self {
            state: ConnectionState::Connecting,
            latency: None,
            reported: now,
            alive: now,
        }
    }

    /// Continues the connection of a peer whose keys, cluster id or role have changed. `before` is
    /// the state before the change. If the peer has ever been connected, the state becomes
    /// [`ConnectionState::Error`]. Returns whether the change must be reported.
    pub(super) fn replace(&mut self, before: ConnectionState) -> bool {
        let is_lost = before != ConnectionState::Connecting;
        if is_lost {
            self.state = ConnectionState::Error;
        }

        is_lost
    }

    /// Handles a PONG, and returns whether the state must be reported.
    pub(super) fn handle_pong(&mut self, rtt: Duration, now: Instant) -> bool {
        self.latency = Some(rtt);
        self.alive = now;
        let is_news = self.state != ConnectionState::Connected
            || now.duration_since(self.reported) >= REPORT_INTERVAL;
        if is_news {
            self.state = ConnectionState::Connected;
            self.reported = now;
        }

        is_news
    }

    /// Returns when the connection becomes an error if no session receives a PONG until then.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        (self.state == ConnectionState::Connected).then(|| self.alive + CONNECTION_HOLD)
    }

    /// Updates the state at a tick or a timeout, and returns whether it must be reported. `is_alive` means that
    /// at least one session is usable and receives PONGs.
    pub(super) fn handle_timeout(&mut self, is_alive: bool, now: Instant) -> bool {
        if is_alive {
            self.alive = now;
        }
        let is_news = self.poll_timeout().is_some_and(|at| at <= now);
        if is_news {
            self.state = ConnectionState::Error;
            self.latency = None;
            self.reported = now;
        }

        is_news
    }

    pub(super) fn event(&self, peer: u16) -> Event {
        Event::Connection {
            peer,
            state: self.state,
            latency: self.latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_reports_changes_and_every_ten_seconds() {
        let start = Instant::now();
        let mut connection = Connection::new(start);
        let at = |ms| start + Duration::from_millis(ms);

        assert!(connection.handle_pong(Duration::from_millis(3), at(10)));
        assert!(!connection.handle_pong(Duration::from_millis(3), at(260)));
        assert!(connection.handle_pong(Duration::from_millis(3), at(10_011)));
        assert!(!connection.handle_timeout(false, at(10_800)));
        assert!(connection.handle_timeout(false, at(10_811)));
        assert_eq!(connection.state, ConnectionState::Error);
        assert!(!connection.handle_timeout(false, at(60_000)));
        assert!(connection.handle_pong(Duration::from_millis(3), at(60_001)));
    }
}
