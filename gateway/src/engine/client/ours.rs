//! Sessions with each replica of a peer that is one of ours.

use super::{Client, WAYS};
use crate::engine::Engine;
use crate::engine::drops::Drop;
use crate::engine::interface::SessionId;
use crate::engine::probe;
use crate::engine::session::{Session, State};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Instant;

impl Client {
    /// Returns the address for an attempt to meet a replica at one address more, if that is due:
    /// `met` are those where each is met, `unknown` is how many sessions have not told yet whom they
    /// lead to.
    fn further_way(
        &mut self,
        met: &BTreeMap<&str, BTreeSet<SocketAddr>>,
        unknown: usize,
        now: Instant,
    ) -> Option<SocketAddr> {
        let short: Vec<_> = met.values().filter(|ways| ways.len() < WAYS).collect();
        if short.is_empty() {
            self.way_attempts = 0;
            return None;
        }
        if unknown > 0 || now < self.next_way.max(self.next_attempt) {
            return None;
        }
        let target = (0..self.endpoints.len())
            .filter_map(|_| self.endpoints.next())
            .find(|address| short.iter().any(|ways| !ways.contains(address)))?;
        self.handle_way_attempt(now);

        Some(target)
    }
}

impl Engine {
    /// Closes what leads to the same replica as other sessions at the same address, or
    /// at more addresses than are of use. Those towards an address that is still the peer's
    /// are worth most, then the older ones.
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
                other.is_own() && other.state == State::Live && other.replica == session.replica
            })
            .collect();
        same.sort_by_key(|session| (!is_current(session), session.live_since, session.id));

        let mut kept = Vec::new();
        let mut surplus = Vec::new();
        for session in same {
            let is_further = is_current(session) && !kept.contains(&session.target);
            if kept.is_empty() || (is_further && kept.len() < WAYS) {
                kept.push(session.target);
            } else {
                surplus.push(session.id);
            }
        }

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

    /// Sees to sessions with each replica of one of our own peers.
    pub(super) fn cover_replicas(&mut self, index: u16, now: Instant) {
        self.abandon_unanswered(index, now);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let mut met: BTreeMap<&str, BTreeSet<SocketAddr>> = BTreeMap::new();
        let mut unknown = 0;
        let mut stale = Vec::new();
        let mut replicas = 1;
        for session in peer.sessions.iter().filter_map(|id| self.sessions.get(*id)) {
            replicas = replicas.max(session.replicas.min(probe::REPLICAS_MAX));
            let Some(target) = session.target.filter(|_| session.is_own()) else {
                continue;
            };
            match &session.replica {
                _ if !client.endpoints.contains(target) => stale.push(session.id),
                Some(replica) => {
                    met.entry(replica).or_default().insert(target);
                }
                None => unknown += 1,
            }
        }

        client.handle_replicas(replicas, now);
        let wanted = replicas as usize;
        let target = if met.len() >= wanted {
            client.attempts = 0;
            let target = client.further_way(&met, unknown, now);
            self.close(&stale, now);
            target
        } else if met.len() + unknown >= wanted || now < client.next_attempt {
            None
        } else {
            if client.handle_attempt(now) {
                self.drops.count(Drop::ReplicaAttempts);
            }
            client.endpoints.next()
        };
        if let Some(target) = target {
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
