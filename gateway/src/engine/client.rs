//! The client's role: opens sessions and keeps them, one per remote replica.
//!
//! Behind a load balancer nobody can choose the replica, so sessions are opened from
//! new source ports until the answers have named every replica; what leads to a
//! replica a second time is closed. A peer that is not one of ours has one session,
//! which moves from port to port and keeps its tunnel: such a peer remembers the
//! time stamp of our last handshake, and the tunnel the cookie.

use super::Engine;
use super::drops::Drop;
use super::endpoints::Endpoints;
use super::interface::{Event, Kind, PortId, SessionId};
use super::noise::{HANDSHAKE_BUFFER, Tunnel};
use super::probe::Gateway;
use super::session::{Opening, Session, State};
use super::{probe, replicas};
use crate::mutant;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a response is waited for at first; doubles with every failure.
const ATTEMPT: Duration = Duration::from_secs(1);
/// WireGuard's own `REKEY_TIMEOUT`.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);
/// Pause between attempts at first; doubles with every failure.
const PAUSE: Duration = Duration::from_millis(250);
/// Attempts to meet a further replica, per replica: with random choice among n,
/// 4 n attempts miss a given one with a probability below e^-4.
const ATTEMPTS_PER_REPLICA: u32 = 4;
/// When those are used up, how long until the next ones.
const ROUND: Duration = Duration::from_secs(10);
/// How long a replica that would not serve an upstream-like peer waits before it
/// finds out by itself whether the peer is one; and how long that may take.
const STAGGER: Duration = Duration::from_secs(3);
/// When it may find out again.
const STAGGER_AGAIN: Duration = Duration::from_secs(300);
/// How long a peer that answers no probes may be silent before its session moves
/// (WireGuard's `KEEPALIVE_TIMEOUT + REKEY_TIMEOUT`, by which its side should have spoken).
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// How often at most a stray message makes a session renew its handshake.
const RENEWAL: Duration = Duration::from_secs(5);

/// What the client's role needs beside the sessions.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) endpoints: Endpoints,
    since: Instant,
    /// How many replicas the peer says it has.
    replicas: u32,
    attempts_left: u32,
    next_attempt: Instant,
    next_round: Instant,
    /// Attempts in a row without a response.
    failures: u32,
    /// When this replica began to find out what kind of peer it is, though another
    /// one would serve it.
    explored: Option<Instant>,
}

impl Client {
    pub(super) fn new(hosts: &[String], port: u16, now: Instant) -> Self {
        Self {
            endpoints: Endpoints::new(hosts, port, now),
            since: now,
            replicas: 1,
            attempts_left: ATTEMPTS_PER_REPLICA,
            next_attempt: now,
            next_round: now,
            failures: 0,
            explored: None,
        }
    }

    /// Handles that a replica of the peer answered, and how many it says there are.
    pub(super) fn handle_replicas(&mut self, gateway: &Gateway) {
        let replicas = gateway.replicas.unwrap_or(1).min(probe::REPLICAS_MAX);
        if replicas > self.replicas {
            self.restock(replicas);
        }
        self.replicas = replicas;
    }

    /// Allows a new round of attempts, at once.
    pub(super) fn handle_loss(&mut self, now: Instant) {
        self.restock(self.replicas);
        self.next_attempt = now;
    }

    /// Handles a response.
    pub(super) fn handle_established(&mut self) {
        self.failures = 0;
    }

    fn handle_failure(&mut self, now: Instant) {
        self.next_attempt = now + backoff(PAUSE, self.failures);
        self.failures = self.failures.saturating_add(1);
    }

    fn restock(&mut self, replicas: u32) {
        self.attempts_left = replicas * ATTEMPTS_PER_REPLICA;
    }

    fn attempt_timeout(&self) -> Duration {
        backoff(ATTEMPT, self.failures)
    }

    /// Whether this replica may hold a session with a peer that has only one, though
    /// it would not serve it: to find out what kind of peer it is.
    fn explores(&mut self, kind: Kind, now: Instant) -> bool {
        if kind != Kind::Unknown || now < self.since + STAGGER {
            return false;
        }
        let begun = match self.explored {
            Some(begun) if now < begun + STAGGER_AGAIN => begun,
            Some(_) | None => *self.explored.insert(now),
        };

        now < begun + STAGGER
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
        let serves = replicas::serves(&self.local.replica, &self.replicas, &peer.config.cluster_id);

        match peer.kind {
            Kind::Ours => self.cover_replicas(index, now),
            kind if serves || client.explores(kind, now) => self.keep_single(index, now),
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

    /// Renews the handshake of an upstream-like peer that sends us what we cannot
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
                    .is_some_and(|peer| peer.kind == Kind::Upstream)
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
            return;
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

    /// Closes what leads to the same replica as another session: of two, the one
    /// towards an address that is no longer the peer's, else the younger.
    pub(super) fn close_duplicates(&mut self, id: SessionId, now: Instant) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let index = session.peer;
        let Some((peer, client)) = self
            .peers
            .get(index)
            .and_then(|peer| Some((peer, peer.client.as_ref()?)))
        else {
            return;
        };
        let worth = |session: &Session| {
            let is_current = session
                .target
                .is_some_and(|target| client.endpoints.contains(target));
            (
                is_current,
                std::cmp::Reverse((session.live_since, session.id)),
            )
        };
        let same: Vec<_> = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|other| {
                other.is_own() && other.state == State::Live && other.replica == session.replica
            })
            .collect();
        let Some(best) = same.iter().max_by_key(|session| worth(session)) else {
            return;
        };
        let best = best.id;
        let surplus: Vec<_> = same.iter().map(|s| s.id).filter(|id| *id != best).collect();

        self.close(&surplus, now);
    }

    /// Gives sessions up, in a way that the other side notices.
    fn close(&mut self, ids: &[SessionId], now: Instant) {
        for id in ids {
            let Some(session) = self.sessions.get_mut(*id) else {
                continue;
            };
            session.close(now);
            let peer = session.peer;
            self.refresh(peer);
            self.wake_session(*id);
        }
    }

    /// Sees to one session with each replica of one of our own peers.
    fn cover_replicas(&mut self, index: u16, now: Instant) {
        self.abandon_unanswered(index, now);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let mut met = BTreeSet::new();
        let mut unknown = 0;
        let mut stale = Vec::new();
        for session in peer.sessions.iter().filter_map(|id| self.sessions.get(*id)) {
            let is_current = |target| client.endpoints.contains(target);
            match &session.replica {
                _ if !session.is_own() => {}
                _ if !session.target.is_some_and(is_current) => stale.push(session.id),
                Some(replica) => {
                    met.insert(replica.as_str());
                }
                None => unknown += 1,
            }
        }

        let wanted = client.replicas as usize;
        let missing = wanted.saturating_sub(met.len() + unknown);
        if met.len() >= wanted {
            client.restock(client.replicas);
            self.close(&stale, now);
            return;
        }
        if missing == 0 || now < client.next_attempt {
            return;
        }
        if client.attempts_left == 0 && met.len() + unknown > 0 {
            if now < client.next_round {
                return;
            }
            client.restock(client.replicas);
        }

        client.attempts_left = client.attempts_left.saturating_sub(1);
        client.next_attempt = now + PAUSE;
        if client.attempts_left == 0 {
            client.next_round = now + ROUND;
            self.drops.count(Drop::ReplicaAttempts);
        }
        if let Some(target) = client.endpoints.next() {
            self.open(index, target, now);
        }
    }

    /// Gives up the attempts with one of our own peers that were not answered.
    fn abandon_unanswered(&mut self, index: u16, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let timeout = client.attempt_timeout();
        let unanswered: Vec<_> = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|s| s.target.is_some() && !s.tunnel.is_keyed())
            .filter(|s| now.duration_since(s.waiting_since) >= timeout)
            .map(|session| session.id)
            .collect();

        if !unanswered.is_empty() {
            client.handle_failure(now);
        }
        for id in unanswered {
            self.remove_session(id);
        }
    }

    /// Sees to the one session of a peer that is not one of ours.
    fn keep_single(&mut self, index: u16, now: Instant) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let kind = peer.kind;
        let Some(client) = &mut peer.client else {
            return;
        };
        let own = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .find(|session| session.is_own());

        let Some(session) = own else {
            if now >= client.next_attempt
                && let Some(target) = client.endpoints.first()
            {
                client.next_attempt = now + PAUSE;
                self.open(index, target, now);
            }
            return;
        };
        let waited = now.duration_since(session.waiting_since) >= client.attempt_timeout();
        let is_stale = session
            .target
            .is_some_and(|target| client.endpoints.len() > 0 && !client.endpoints.contains(target));
        let is_silent = kind == Kind::Unknown && now.duration_since(session.heard) >= SILENCE_MAX;
        let must_move = match session.state {
            State::Live if session.tunnel.is_keyed() => is_stale || is_silent && waited,
            State::Live
            | State::Opening
            | State::Handshaking
            | State::Tentative
            | State::Down { .. }
            | State::Closing { .. } => is_stale || waited,
        };
        if must_move {
            self.rehome(session.id, now);
        }
    }

    /// Moves a session to a new source port (a load balancer's or NAT's connection
    /// tracking may hold the old one to a dead end) and the next address.
    fn rehome(&mut self, id: SessionId, now: Instant) {
        let port = self.new_port();
        let Some(session) = self.sessions.get_mut(id) else {
            return;
        };
        let index = session.peer;
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        client.handle_failure(now);
        // Upstream's client uses the first address only; so do we with its server.
        let target = match peer.kind {
            Kind::Upstream => client.endpoints.first(),
            Kind::Unknown | Kind::Ours => client.endpoints.next(),
        };
        let Some(target) = target else {
            return;
        };

        let old = std::mem::replace(&mut session.port, port);
        session.target = Some(target);
        session.endpoint = target;
        session.state = State::Opening;
        session.waiting_since = now;
        self.ports.insert(port, id);
        if self.ports.remove(&old).is_some() {
            self.events.push_back(Event::ClosePort(old));
        }
        self.events.push_back(Event::OpenPort(port));
        self.refresh(index);
    }

    /// Opens a session towards `target` from a new port.
    fn open(&mut self, index: u16, target: SocketAddr, now: Instant) {
        let slot = self.new_slot();
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

    /// Leaves a peer that has one session to the replica of ours that serves it.
    fn abandon(&mut self, index: u16) {
        let Some(peer) = self.peers.get(index) else {
            return;
        };
        let own: Vec<_> = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|session| session.target.is_some())
            .map(|session| session.id)
            .collect();

        for id in own {
            self.remove_session(id);
        }
    }

    fn new_port(&mut self) -> PortId {
        let port = PortId(self.next_port);
        self.next_port = self.next_port.wrapping_add(1).max(1);

        port
    }
}
