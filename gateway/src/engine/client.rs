//! Implements the client role: opens and maintains sessions with every remote replica.
//!
//! A client cannot choose the replica behind a load balancer. It therefore opens sessions from new
//! source ports until the PONGs have named every replica. It closes duplicate sessions, which reach
//! the same lane (worker thread) of the same replica at the same address.
//!
//! A peer may have several addresses, for example one per node for a NodePort. Each address
//! forwards to any replica. The client then keeps sessions to each replica at two addresses,
//! because a node may fail.
//!
//! The client has one session with a peer that is not a gateway of this project. If this session is
//! lost, the client moves the session to a new source port, and keeps the session's [`Tunnel`]. The
//! tunnel stores the cookie that the peer sent. It also ensures that the timestamp of the next
//! initiation is newer than the last one, as WireGuard requires.
//!
//! The kind of a peer is unknown until a probe arrives. In the meantime only one replica of this
//! cluster serves the peer. The other replicas *explore* the kind: they open a session for a short
//! time, and wait for a probe.

mod discovery;
mod ours;
mod single;

use super::Engine;
use super::endpoints::Endpoints;
use super::interface::{Event, Kind, LaneId, PortId, SessionId};
use super::noise::{HANDSHAKE_BUFFER, Tunnel};
use super::replicas;
use super::session::{Opening, Session, State};
use crate::mutant;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Timeout of the first handshake attempt; doubles with every failure.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Upper bound of [`ATTEMPT`] and [`PAUSE`] after repeated failures. It is shorter than WireGuard's
/// `REKEY_TIMEOUT` of 5 s, because each attempt may reach another replica.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// First pause between attempts to open a session; doubles with every failure.
const PAUSE: Duration = Duration::from_millis(250);
/// Number of quick attempts ([`PAUSE`] apart) to discover a further replica, for each replica and
/// lane. If a load balancer chooses among n replicas at random, 8 n attempts miss a given replica
/// with a probability below e^-8. In a test with 4 n attempts, the discovery of one in twenty
/// restarted replicas took more than 3 s.
const ATTEMPTS_PER_REPLICA: u32 = 8;
/// Pause between attempts to discover a further replica, after the quick attempts. A restarted
/// replica is discovered within seconds, at the cost of one small message per second.
const PAUSE_LATER: Duration = Duration::from_secs(1);
/// Number of addresses at which the client keeps sessions to each replica.
const PATHS_PER_REPLICA: usize = 2;
/// Pause between attempts to reach a replica at a further address, after the quick attempts. It is
/// long, because the replica may be permanently unreachable at that address.
const PAUSE_PATHS: Duration = Duration::from_secs(60);
/// Delay before a replica opens a session to explore the kind of a peer that another replica
/// serves.
const STAGGER: Duration = Duration::from_secs(1);
/// Time limit of a session that explores the kind of a peer.
const EXPLORATION: Duration = Duration::from_secs(3);
/// First pause between explorations; doubles every time. A peer that runs plain WireGuard has only
/// one session, and each exploration takes that session from the replica that serves the peer.
const EXPLORE_AGAIN: Duration = Duration::from_secs(10);
/// Upper bound of the pause between explorations.
const EXPLORE_AGAIN_MAX: Duration = Duration::from_secs(300);
/// Minimum interval between handshakes that are triggered by messages with an unknown receiver
/// index.
const RENEWAL: Duration = Duration::from_secs(1);

/// State of the client role for one peer.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) endpoints: Endpoints,
    /// Number of remote lanes to connect to, derived from the highest numbers of replicas and lanes
    /// that the remote replicas advertise.
    expected_lanes: u32,
    /// Number of attempts to discover a replica since a session was lost or `expected_lanes`
    /// increased.
    attempts: u32,
    /// Number of attempts to reach replicas at further addresses since a session was lost, or since
    /// `expected_lanes` or the endpoints increased.
    path_attempts: u32,
    next_attempt: Instant,
    /// Earliest time of the next attempt at a further address. It is separate from `next_attempt`,
    /// so that the discovery of a new replica does not wait for these attempts.
    next_path: Instant,
    /// Number of consecutive attempts without a response.
    failures: u32,
    /// Earliest time of the next exploration, if the last one did not reveal the peer's kind.
    explore_again: Instant,
    explorations: u32,
}

impl Client {
    pub(super) fn new(hosts: &[String], port: u16, now: Instant) -> Self {
        Self {
            endpoints: Endpoints::new(hosts, port, now),
            expected_lanes: 1,
            attempts: 0,
            path_attempts: 0,
            next_attempt: now,
            next_path: now,
            failures: 0,
            explore_again: now + STAGGER,
            explorations: 0,
        }
    }

    /// Replaces the endpoints. If they have changed, attempts at further addresses are quick again.
    pub(super) fn set_endpoints(&mut self, hosts: &[String], port: u16, now: Instant) {
        if self.endpoints.set(hosts, port, now) {
            self.allow_paths(now);
        }
    }

    /// Replaces the addresses of `host`, and returns the number of addresses that were refused
    /// because they are inside a tunnel.
    pub(super) fn handle_resolved(
        &mut self,
        host: &str,
        addresses: Vec<SocketAddr>,
        now: Instant,
    ) -> usize {
        let is_new = |address: &SocketAddr| !self.endpoints.contains(*address);
        if addresses.iter().any(is_new) {
            self.allow_paths(now);
        }

        self.endpoints.handle_resolved(host, addresses)
    }

    /// Allows quick attempts again after a session was lost. The first attempt is due now.
    fn handle_loss(&mut self, now: Instant) {
        self.attempts = 0;
        self.next_attempt = now;
        self.allow_paths(now);
    }

    /// Allows quick attempts to reach replicas at further addresses. The first attempt is due now.
    fn allow_paths(&mut self, now: Instant) {
        self.path_attempts = 0;
        self.next_path = now;
    }

    /// Updates the number of remote lanes to connect to. An increase allows quick attempts again.
    fn handle_expected_lanes(&mut self, lanes: u32, now: Instant) {
        if lanes > self.expected_lanes {
            self.attempts = 0;
            self.allow_paths(now);
        }
        self.expected_lanes = lanes;
    }

    /// Counts an attempt to discover a further replica, and returns whether it was the last quick
    /// attempt.
    fn handle_attempt(&mut self, now: Instant) -> bool {
        let quick = self.expected_lanes * ATTEMPTS_PER_REPLICA;
        self.attempts = self.attempts.saturating_add(1);
        self.next_attempt = now
            + if self.attempts < quick {
                PAUSE
            } else {
                PAUSE_LATER
            };

        self.attempts == quick
    }

    /// Counts an attempt to reach a replica at a further address.
    fn handle_path_attempt(&mut self, now: Instant) {
        let quick = self.expected_lanes * ATTEMPTS_PER_REPLICA;
        self.path_attempts = self.path_attempts.saturating_add(1);
        self.next_path = now
            + if self.path_attempts < quick {
                PAUSE
            } else {
                PAUSE_PATHS
            };
    }

    /// Ends the backoff after a handshake response.
    pub(super) fn handle_established(&mut self, now: Instant) {
        if self.failures > 0 {
            self.failures = 0;
            self.next_attempt = now;
        }
    }

    fn handle_failure(&mut self, now: Instant) {
        self.next_attempt = now + backoff(PAUSE, self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    fn attempt_timeout(&self) -> Duration {
        backoff(ATTEMPT, self.failures)
    }

    /// Returns whether this replica may now explore the kind of a peer that another replica serves.
    /// `live_since` is the time at which the exploring session became live. If the session has
    /// reached [`EXPLORATION`], the method schedules the next exploration.
    fn explores(&mut self, kind: Kind, live_since: Option<Instant>, now: Instant) -> bool {
        if live_since.is_some_and(|since| now.duration_since(since) >= EXPLORATION) {
            let pause = EXPLORE_AGAIN * 2_u32.pow(self.explorations.min(8));
            self.explore_again = now + pause.min(EXPLORE_AGAIN_MAX);
            self.explorations = self.explorations.saturating_add(1);
        }

        kind == Kind::Unknown && now >= self.explore_again
    }
}

/// Returns `first`, doubled for every failure, up to [`ATTEMPT_MAX`].
fn backoff(first: Duration, failures: u32) -> Duration {
    (first * 2_u32.pow(failures.min(8))).min(ATTEMPT_MAX)
}

impl Engine {
    /// In the client role, opens and closes sessions with a peer, according to the kind and the
    /// discovered replicas of the peer.
    pub(super) fn maintain_client(&mut self, index: u16, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let is_first = self.local.lane.is_first();
        let serves = replicas::serves(&self.local.replica, &self.replicas, &peer.config.cluster_id);

        let own = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .find(|session| session.is_own() && session.is_usable());
        let live_since = own.map(|session| session.live_since);

        match peer.kind {
            Kind::Ours if self.leaving.is_some() => {}
            Kind::Ours => self.cover_replicas(index, now),
            kind if is_first && (serves || client.explores(kind, live_since, now)) => {
                self.keep_single(index, now)
            }
            Kind::Unknown | Kind::Upstream => self.abandon(index),
        }
    }

    /// Sends the initiation of the session that waits for `port`.
    pub(super) fn start_handshake(&mut self, port: PortId, now: Instant) {
        let Some(session) = self.ports.get(&port).and_then(|id| self.sessions.get(*id)) else {
            return; // The session has ended meanwhile.
        };
        if session.port == port && session.state == State::Opening {
            self.initiate(session.id, now);
        }
    }

    pub(super) fn initiate(&mut self, id: SessionId, now: Instant) {
        let mut buffer = [0; HANDSHAKE_BUFFER];
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let Some(len) = session.tunnel.initiate(&mut buffer) else {
            return;
        };
        if session.is_pending() {
            session.state = State::Handshaking;
        }
        session.waiting_since = now;
        let (port, to) = (session.port, session.endpoint);
        self.transmit(port, to, &buffer[..len]);
        self.wake_session(id);
    }

    /// Starts a handshake with the peer at `from`, which sent a message with an unknown receiver
    /// index. The message may use keys from a handshake with another replica of this cluster.
    /// `from` is not authenticated, so the rate of these handshakes is limited.
    pub(super) fn handle_unknown_receiver(&mut self, from: SocketAddr, now: Instant) {
        if self.unknown_receiver_handled {
            return;
        }
        self.unknown_receiver_handled = true;

        let peers = &self.peers;
        let affected = self.sessions.iter().find(|session| {
            session.endpoint == from
                && session.is_own()
                && session.state == State::Live
                && now.duration_since(session.waiting_since) >= RENEWAL
                && peers
                    .get(session.peer)
                    .is_some_and(|peer| peer.kind != Kind::Ours)
        });
        if let Some(id) = affected.map(|session| session.id) {
            self.initiate(id, now);
        }
    }

    /// Replaces a lost session, which this side opened, with a session from a new source port.
    pub(super) fn replace_lost(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        if mutant::disables("re-initiation") {
            session.state = State::Down { since: now };
            return self.refresh(index);
        }

        let kind = self
            .peers
            .get(index)
            .map_or(Kind::Unknown, |peer| peer.kind);
        if kind == Kind::Ours {
            session.close(now);
        } else {
            self.rehome(id, now);
        }
        if let Some(client) = self.peers.get_mut(index).and_then(|p| p.client.as_mut()) {
            client.handle_loss(now);
        }
        self.refresh(index);
        self.maintain_client(index, now);
    }

    /// Opens a session from a new port to `target`, with a slot that selects the lane `lane` of the
    /// remote gateway (`engine/lanes.rs`).
    fn open(&mut self, index: u16, target: SocketAddr, lane: LaneId, now: Instant) {
        self.open_with(index, target, |slot| lane.holds(slot), now);
    }

    /// Opens a session to a peer of unknown kind. If the peer is a gateway of this project, its
    /// first lane responds, regardless of its number of lanes.
    fn open_first(&mut self, index: u16, target: SocketAddr, now: Instant) {
        self.open_with(index, target, LaneId::is_held_by_first, now);
    }

    fn open_with(
        &mut self,
        index: u16,
        target: SocketAddr,
        is_suitable: impl Fn(u32) -> bool,
        now: Instant,
    ) {
        let Some(remote) = self.peers.get(index).map(|peer| peer.config.public_key) else {
            return;
        };
        let slot = self.hinted_slot(&remote, is_suitable);
        let port = self.new_port();
        let Some(peer) = self.peers.get(index) else {
            return;
        };
        let Some(key) = self.keys.get(&peer.local_key) else {
            return;
        };
        let opening = Opening {
            peer: index,
            slot,
            remote_slot: None,
            state: State::Opening,
            port,
            endpoint: target,
            target: Some(target),
            mtu: peer.config.mtu,
        };
        let tunnel = Tunnel::new(key, peer.config.public_key, slot);

        if let Some(id) = self.add_session(Session::new(opening, tunnel, now)) {
            self.ports.insert(port, id);
            self.events.push_back(Event::OpenPort(port));
        }
    }

    fn new_port(&mut self) -> PortId {
        let port = PortId(self.next_port);
        self.next_port = self.next_port.wrapping_add(1).max(1);

        port
    }
}
