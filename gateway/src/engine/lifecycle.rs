//! Adds and removes sessions, and updates their peers.

use super::Engine;
use super::drops::Drop;
use super::interface::{Event, Kind, LaneId, SessionId};
use super::peer::Candidate;
use super::place::Placements;
use super::session::Session;
use std::collections::BTreeSet;

impl Engine {
    /// Recomputes the sessions that flows to a peer may use, and reports when the peer becomes
    /// reachable or unreachable.
    pub(super) fn refresh(&mut self, index: u16) {
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let was_reachable = !peer.selectable.is_empty();
        let usable = || {
            let sessions = peer.sessions.iter();
            sessions
                .filter_map(|id| self.sessions.get(*id))
                .filter(|session| session.is_usable())
        };
        let newest = usable().map(|session| session.live_since).max();
        let all_leave = usable().all(|session| session.leaving);
        let is_preferred = |session: &&Session| match peer.kind {
            Kind::Ours => all_leave || !session.leaving,
            // A single-session peer uses only its newest session.
            Kind::Unknown | Kind::Upstream => Some(session.live_since) == newest,
        };
        let direct: BTreeSet<_> = usable()
            .filter(is_preferred)
            .filter(|session| session.direct)
            .map(remote_lane)
            .collect();
        // Where a direct session reaches a lane, all others take a detour to it.
        let is_short =
            |session: &&Session| session.direct || !direct.contains(&remote_lane(session));
        let mut placements = Placements::default();
        let mut selectable = Vec::new();
        for session in usable().filter(is_preferred).filter(is_short) {
            let candidate = Candidate {
                session: session.id,
                salt: session.slot,
            };
            selectable.push(candidate);
            for prefix in session.place.iter().flat_map(|it| it.pods(&peer.sources)) {
                placements.add(prefix, candidate);
            }
        }

        let reachable = !selectable.is_empty();
        peer.selectable = selectable;
        peer.placements = placements;
        self.wake_queue(index);
        if reachable != was_reachable {
            self.events.push_back(Event::Reachable {
                peer: index,
                reachable,
            });
        }
    }

    /// Moves the engine's timeout to the next deadline of the session, if that is earlier.
    pub(super) fn wake_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(id) else {
            return;
        };
        let kind = self
            .peers
            .get(session.peer)
            .map_or(Kind::Unknown, |peer| peer.kind);
        self.next_timeout = self.next_timeout.min(session.poll_timeout(kind));
    }

    /// Adds a session to its peer; returns `None` if the limit of sessions is reached.
    pub(super) fn add_session(&mut self, session: Session) -> Option<SessionId> {
        let index = session.peer;
        let Some(id) = self.sessions.insert(session) else {
            self.drops.count(Drop::SessionLimit);
            return None;
        };
        if let Some(peer) = self.peers.get_mut(index) {
            peer.sessions.push(id);
        }
        self.wake_session(id);

        Some(id)
    }

    /// Removes a session, and closes the port that was opened for it.
    pub(super) fn remove_session(&mut self, id: SessionId) {
        let Some(session) = self.sessions.remove(id) else {
            return;
        };
        if self.ports.get(&session.port) == Some(&id) {
            self.ports.remove(&session.port);
            self.events.push_back(Event::ClosePort(session.port));
        }
        if let Some(peer) = self.peers.get_mut(session.peer) {
            peer.sessions.retain(|other| *other != id);
        }
        self.refresh(session.peer);
    }
}

/// Returns the remote replica and the lane that a session reaches.
fn remote_lane(session: &Session) -> (Option<&str>, LaneId) {
    (session.replica.as_deref(), session.remote_lane)
}
