//! The client's role: opens sessions and keeps them, one per remote replica.
//!
//! Behind a load balancer nobody can choose the replica, so sessions are opened from
//! new source ports until the answers have named every replica; what leads to a
//! replica's lane a second time at the same address is closed. Where the peer has several addresses
//! (a node port has one per node), each replica is met at two of them: the node behind
//! one may die, and any address leads to any replica. A peer that is not one of ours has one session,
//! which moves from port to port and keeps its tunnel: such a peer remembers the
//! time stamp of our last handshake, and the tunnel the cookie.

mod met;
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

/// How long a response is waited for at first; doubles with every failure.
const ATTEMPT: Duration = Duration::from_secs(1);
/// What a peer that is back waits for at most. Shorter than WireGuard's
/// `REKEY_TIMEOUT` of 5 s: every attempt may meet another replica.
const ATTEMPT_MAX: Duration = Duration::from_secs(2);
/// Pause between attempts at first; doubles with every failure.
const PAUSE: Duration = Duration::from_millis(250);
/// Quick attempts to meet a further replica, per replica and lane of it: with random choice among
/// n, 8 n attempts miss a given one with a probability below e^-8. (With 4 n, one return of a
/// gateway in twenty took longer than 3 s, and one in some hundreds longer than 8 s.)
const ATTEMPTS_PER_REPLICA: u32 = 8;
/// Pause between attempts when those are used up: a replica that comes back is met
/// within seconds, for one small message a second.
const PAUSE_LATER: Duration = Duration::from_secs(1);
/// At how many addresses each replica is met.
const WAYS: usize = 2;
/// Pause between attempts to meet a replica at a further address when the quick ones are used up:
/// there may be no such way.
const PAUSE_WAYS: Duration = Duration::from_secs(60);
/// How long a replica that would not serve an upstream-like peer waits before it
/// finds out by itself whether the peer is one.
const STAGGER: Duration = Duration::from_secs(1);
/// How long that may take.
const EXPLORATION: Duration = Duration::from_secs(3);
/// When it may try again, at first; doubles every time, since each time takes the
/// session from the replica that serves a peer without probes.
const EXPLORE_AGAIN: Duration = Duration::from_secs(10);
const EXPLORE_AGAIN_MAX: Duration = Duration::from_secs(300);
/// How often at most a stray message makes a session renew its handshake.
const RENEWAL: Duration = Duration::from_secs(1);

/// What the client's role needs beside the sessions.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) endpoints: Endpoints,
    /// How many lanes of replicas are to be met, by the highest numbers that they tell.
    wanted: u32,
    /// Attempts since a replica was lost or came.
    attempts: u32,
    /// Attempts since all replicas were met, to meet them at further addresses.
    way_attempts: u32,
    next_attempt: Instant,
    /// The same for a further address: a replica that comes must not wait for that.
    next_way: Instant,
    /// Attempts in a row without a response.
    failures: u32,
    /// Until when this replica leaves the peer alone, having found out that it does
    /// not tell its kind.
    explore_again: Instant,
    explorations: u32,
}

impl Client {
    pub(super) fn new(hosts: &[String], port: u16, now: Instant) -> Self {
        Self {
            endpoints: Endpoints::new(hosts, port, now),
            wanted: 1,
            attempts: 0,
            way_attempts: 0,
            next_attempt: now,
            next_way: now,
            failures: 0,
            explore_again: now + STAGGER,
            explorations: 0,
        }
    }

    /// Replaces the addresses; other ones are worth quick attempts.
    pub(super) fn set_endpoints(&mut self, hosts: &[String], port: u16, now: Instant) {
        if self.endpoints.set(hosts, port, now) {
            self.allow_ways(now);
        }
    }

    /// Handles the answer to a lookup, and returns how many of its addresses are refused.
    pub(super) fn handle_resolved(
        &mut self,
        host: &str,
        addresses: Vec<SocketAddr>,
        now: Instant,
    ) -> usize {
        let is_new = |address: &SocketAddr| !self.endpoints.contains(*address);
        if addresses.iter().any(is_new) {
            self.allow_ways(now);
        }

        self.endpoints.handle_resolved(host, addresses)
    }

    /// Allows quick attempts again, at once.
    fn handle_loss(&mut self, now: Instant) {
        self.attempts = 0;
        self.next_attempt = now;
        self.allow_ways(now);
    }

    /// Allows quick attempts to meet replicas at further addresses, at once.
    fn allow_ways(&mut self, now: Instant) {
        self.way_attempts = 0;
        self.next_way = now;
    }

    /// Handles how many lanes of replicas are to be met; more than before are worth
    /// quick attempts.
    fn handle_wanted(&mut self, wanted: u32, now: Instant) {
        if wanted > self.wanted {
            self.attempts = 0;
            self.allow_ways(now);
        }
        self.wanted = wanted;
    }

    /// Notes an attempt to meet a further replica; returns whether it was the last
    /// quick one.
    fn handle_attempt(&mut self, now: Instant) -> bool {
        let quick = self.wanted * ATTEMPTS_PER_REPLICA;
        self.attempts = self.attempts.saturating_add(1);
        self.next_attempt = now
            + if self.attempts < quick {
                PAUSE
            } else {
                PAUSE_LATER
            };

        self.attempts == quick
    }

    /// Notes an attempt to meet a replica at a further address.
    fn handle_way_attempt(&mut self, now: Instant) {
        let quick = self.wanted * ATTEMPTS_PER_REPLICA;
        self.way_attempts = self.way_attempts.saturating_add(1);
        self.next_way = now
            + if self.way_attempts < quick {
                PAUSE
            } else {
                PAUSE_WAYS
            };
    }

    /// Handles a response: what failed before need not be waited out.
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

    /// Whether this replica may hold a session with a peer that has only one, though
    /// it would not serve it: to find out what kind of peer it is. `live_since` is
    /// when the session came to be.
    fn explores(&mut self, kind: Kind, live_since: Option<Instant>, now: Instant) -> bool {
        if live_since.is_some_and(|since| now.duration_since(since) >= EXPLORATION) {
            let pause = EXPLORE_AGAIN * 2_u32.pow(self.explorations.min(8));
            self.explore_again = now + pause.min(EXPLORE_AGAIN_MAX);
            self.explorations = self.explorations.saturating_add(1);
        }

        kind == Kind::Unknown && now >= self.explore_again
    }
}

/// Doubles `first` with every failure, up to [`ATTEMPT_MAX`].
fn backoff(first: Duration, failures: u32) -> Duration {
    (first * 2_u32.pow(failures.min(8))).min(ATTEMPT_MAX)
}

impl Engine {
    /// Brings a peer's sessions closer to what they should be; harmless to call
    /// at any time.
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

    /// Handles that a source port can be used.
    pub(super) fn start_handshake(&mut self, port: PortId, now: Instant) {
        let Some(session) = self.ports.get(&port).and_then(|id| self.sessions.get(*id)) else {
            return; // The session ended meanwhile; so did the port.
        };
        if session.port == port && session.state == State::Opening {
            self.initiate(session.id, now);
        }
    }

    /// Sends an initiation.
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

    /// Renews the handshake of a peer with one session that sends us what we cannot
    /// read: another replica of ours may have had a handshake with it meanwhile.
    /// Whether `from` is the peer nobody has proved, hence the limits.
    pub(super) fn handle_stray(&mut self, from: SocketAddr, now: Instant) {
        if self.stray_handled {
            return;
        }
        self.stray_handled = true;

        let peers = &self.peers;
        let stray = self.sessions.iter().find(|session| {
            session.endpoint == from
                && session.is_own()
                && session.state == State::Live
                && now.duration_since(session.waiting_since) >= RENEWAL
                && peers
                    .get(session.peer)
                    .is_some_and(|peer| peer.kind != Kind::Ours)
        });
        if let Some(id) = stray.map(|session| session.id) {
            self.initiate(id, now);
        }
    }

    /// Gives a lost session of ours up and opens another one from a new port.
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

    /// Opens a session towards `target` from a new port, to be answered by `lane`.
    fn open(&mut self, index: u16, target: SocketAddr, lane: LaneId, now: Instant) {
        self.open_with(index, target, |slot| lane.holds(slot), now);
    }

    /// As [`Engine::open`], of a peer whose kind is not known: the first lane of one of ours is
    /// to answer, however many there are.
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
