//! One session with each replica of a peer that is one of ours.

use crate::engine::Engine;
use crate::engine::drops::Drop;
use crate::engine::interface::SessionId;
use crate::engine::probe;
use crate::engine::session::{Session, State};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Instant;

impl Engine {
    /// Closes what leads to the same replica as another session: of two, the one
    /// towards an address that is no longer the peer's, else the younger.
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
        let worth = |session: &Session| {
            let is_current = session
                .target
                .is_some_and(|target| client.endpoints.contains(target));
            (is_current, Reverse((session.live_since, session.id)))
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
    pub(super) fn cover_replicas(&mut self, index: u16, now: Instant) {
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
        let mut replicas = 1;
        for session in peer.sessions.iter().filter_map(|id| self.sessions.get(*id)) {
            let is_current = |target| client.endpoints.contains(target);
            replicas = replicas.max(session.replicas.min(probe::REPLICAS_MAX));
            match &session.replica {
                _ if !session.is_own() => {}
                _ if !session.target.is_some_and(is_current) => stale.push(session.id),
                Some(replica) => {
                    met.insert(replica.as_str());
                }
                None => unknown += 1,
            }
        }

        client.handle_replicas(replicas);
        let wanted = replicas as usize;
        let missing = wanted.saturating_sub(met.len() + unknown);
        if met.len() >= wanted {
            client.attempts = 0;
            return self.close(&stale, now);
        }
        if missing == 0 || now < client.next_attempt {
            return;
        }

        if client.handle_attempt(now) {
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
}
