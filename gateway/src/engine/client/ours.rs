//! Maintains client sessions with every replica of a peer that runs gateways of this project.

use super::discovery::Discovery;
use super::{Client, PATHS_PER_REPLICA};
use crate::engine::Engine;
use crate::engine::drops::Drop;
use crate::engine::interface::{LaneId, SessionId};
use crate::engine::session::{Session, State};
use std::net::SocketAddr;
use std::time::Instant;

/// Upper limit of the sessions that this side opens with one peer. It does not depend on the
/// replicas and lanes that the peer advertises, because a peer may advertise wrong numbers.
const OWN_PER_PEER: usize = 128;

impl Client {
    /// Selects a lane that has no session at the address of its replica's node, or sessions at fewer than
    /// [`PATHS_PER_REPLICA`] addresses, and a further address for it. Returns `None` if there is none, or if no attempt is
    /// due.
    fn further_path(
        &mut self,
        discovery: &Discovery<'_>,
        now: Instant,
    ) -> Option<(SocketAddr, LaneId)> {
        let paths = discovery.paths.iter();
        let short: Vec<_> = paths
            .filter(|(_, paths)| paths.len() < PATHS_PER_REPLICA)
            .collect();
        let direct = discovery.missing_direct();
        if short.is_empty() && direct.is_none() {
            self.path_attempts = 0;
            return None;
        }
        if discovery.unknown > 0 || now < self.next_path.max(self.next_attempt) {
            return None;
        }
        let mut further = || {
            let mut addresses = (0..self.endpoints.len()).filter_map(|_| self.endpoints.next());
            addresses.find_map(|address| {
                let short = short.iter().find(|(_, paths)| !paths.contains(&address));
                short.map(|((_, lane), _)| (address, *lane))
            })
        };
        let found = direct.or_else(&mut further)?;
        self.handle_path_attempt(now);

        Some(found)
    }
}

impl Engine {
    /// Closes the duplicates of a session. Of the sessions that reach the same remote lane, one
    /// session per address is kept, at up to [`PATHS_PER_REPLICA`] addresses. A session is
    /// preferred if its address is still an endpoint of the peer and its slot selects that lane, then
    /// if it was opened to the address of the replica's node. Among equal sessions, the older ones are kept.
    pub(in crate::engine) fn close_duplicates(&mut self, id: SessionId, now: Instant) {
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
        let is_current = |session: &Session| {
            session
                .target
                .is_some_and(|target| client.endpoints.contains(target))
        };
        let mut same: Vec<_> = peer
            .sessions
            .iter()
            .filter_map(|id| self.sessions.get(*id))
            .filter(|other| {
                other.is_own()
                    && other.state == State::Live
                    && other.replica == session.replica
                    && other.remote_lane == session.remote_lane
            })
            .collect();
        let worth = |session: &Session| session.is_settled() && is_current(session);
        // A new session may not know its replica's node yet, but an older one does.
        let node = same.iter().find_map(|session| session.place.as_ref());
        let node = node.map(|place| place.address());
        let is_direct =
            |session: &Session| node.is_some() && session.target.map(|it| it.ip()) == node;
        same.sort_by_key(|session| {
            (
                !worth(session),
                !is_direct(session),
                session.live_since,
                session.id,
            )
        });

        let mut kept = Vec::new();
        let mut surplus = Vec::new();
        for session in same {
            let is_further = is_current(session) && !kept.contains(&session.target);
            if kept.is_empty() || (is_further && kept.len() < PATHS_PER_REPLICA) {
                kept.push(session.target);
            } else {
                surplus.push(session.id);
            }
        }

        self.close(&surplus, now);
    }

    /// Closes sessions. A last PING announces the closing to the remote replica.
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

    /// Maintains sessions with every replica of a peer, in the remote lanes that pair with this
    /// lane.
    pub(super) fn cover_replicas(&mut self, index: u16, now: Instant) {
        self.abandon_unanswered(index, now);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let own = self.local.lane;
        let mut discovery = Discovery::new(own);
        for session in peer.sessions.iter().filter_map(|id| self.sessions.get(*id)) {
            discovery.note_session(session, &client.endpoints);
        }

        let missing_lanes: Vec<_> = discovery.missing_lanes().map(|(_, lane)| lane).collect();
        let missing = missing_lanes.len() + discovery.missing_replicas();
        client.handle_expected_lanes(u32_of(discovery.paths.len() + missing), now);
        let is_full = discovery.sessions >= OWN_PER_PEER;
        let attempt = if missing == 0 {
            client.attempts = 0;
            client.further_path(&discovery, now).filter(|_| !is_full)
        } else if missing <= discovery.unknown || now < client.next_attempt {
            None
        } else {
            // Use round robin, because a lane that never responds must not delay the other lanes.
            let next = client.attempts as usize % missing_lanes.len().max(1);
            if client.handle_attempt(now) {
                self.drops.count(Drop::ReplicaAttempts);
            }
            let lane = missing_lanes.get(next).copied();
            let lane = lane.unwrap_or_else(|| discovery.lane_of_undiscovered());
            if is_full {
                self.drops.count(Drop::SessionLimit);
            }
            let target = client.endpoints.next().filter(|_| !is_full);
            target.map(|target| (target, lane))
        };
        let surplus = discovery.into_surplus();
        self.close(&surplus, now);
        if let Some((target, lane)) = attempt {
            self.open(index, target, lane, now);
        }
    }

    /// Removes the sessions of a peer whose handshake attempt timed out.
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
}

fn u32_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
