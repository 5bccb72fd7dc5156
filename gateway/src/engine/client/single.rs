//! Maintains the single session with a peer that is not a gateway of this project.

use super::PAUSE;
use crate::engine::Engine;
use crate::engine::interface::{Event, Kind, SessionId};
use crate::engine::session::State;
use std::time::{Duration, Instant};

/// Time without a message after which the session of a peer without probes moves to a new port. The
/// value is WireGuard's `KEEPALIVE_TIMEOUT + REKEY_TIMEOUT`, within which a live peer sends a
/// message.
const SILENCE_MAX: Duration = Duration::from_secs(15);

impl Engine {
    /// Opens the single session of a peer. Moves the session to a new source port if the peer does
    /// not respond, or if the session's address is no longer an endpoint of the peer.
    pub(super) fn keep_single(&mut self, index: u16, now: Instant) {
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
                self.open_first(index, target, now);
            }
            return;
        };
        let waited = now.duration_since(session.waiting_since) >= client.attempt_timeout();
        let is_stale = session
            .target
            .is_some_and(|target| client.endpoints.len() > 0 && !client.endpoints.contains(target));
        let is_silent =
            kind == Kind::Unknown && now.duration_since(session.last_received) >= SILENCE_MAX;
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

    /// Moves a session to a new source port and the next address. The connection tracking of a load
    /// balancer or NAT may still map the old port to a dead gateway.
    pub(super) fn rehome(&mut self, id: SessionId, now: Instant) {
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
        // Like upstream's client, use only the first address of an upstream server.
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

    /// Removes the sessions that this side opened with a single-session peer, because another
    /// replica or lane serves the peer.
    pub(super) fn abandon(&mut self, index: u16) {
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
}
