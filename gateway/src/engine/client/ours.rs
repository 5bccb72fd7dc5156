//! Sessions with each replica of a peer that is one of ours.

use super::met::Met;
use super::{Client, WAYS};
use crate::engine::Engine;
use crate::engine::drops::Drop;
use crate::engine::interface::{LaneId, SessionId};
use crate::engine::session::{Session, State};
use std::net::SocketAddr;
use std::time::Instant;

/// Sessions with one peer that this side opens: whatever replicas and lanes it claims to have.
const OWN_PER_PEER: usize = 128;

impl Client {
    /// Returns address and lane for an attempt to meet a lane at one address more, if that is due.
    fn further_way(&mut self, met: &Met<'_>, now: Instant) -> Option<(SocketAddr, LaneId)> {
        let ways = met.ways.iter();
        let short: Vec<_> = ways.filter(|(_, ways)| ways.len() < WAYS).collect();
        if short.is_empty() {
            self.way_attempts = 0;
            return None;
        }
        if met.unknown > 0 || now < self.next_way.max(self.next_attempt) {
            return None;
        }
        let found = (0..self.endpoints.len())
            .filter_map(|_| self.endpoints.next())
            .find_map(|address| {
                let short = short.iter().find(|(_, ways)| !ways.contains(&address));
                short.map(|((_, lane), _)| (address, *lane))
            })?;
        self.handle_way_attempt(now);

        Some(found)
    }
}

impl Engine {
    /// Closes what leads to the same lane of a replica as other sessions at the same address, or
    /// at more addresses than are of use. Those towards an address that is still the peer's,
    /// in the lane that their index names, are worth most, then the older ones.
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
        same.sort_by_key(|session| (!worth(session), session.live_since, session.id));

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

    /// Sees to sessions with each replica of one of our own peers, in the lanes that are to meet.
    pub(super) fn cover_replicas(&mut self, index: u16, now: Instant) {
        self.abandon_unanswered(index, now);
        let Some(peer) = self.peers.get_mut(index) else {
            return;
        };
        let Some(client) = &mut peer.client else {
            return;
        };
        let own = self.local.lane;
        let mut met = Met::new(own);
        for session in peer.sessions.iter().filter_map(|id| self.sessions.get(*id)) {
            met.note(session, &client.endpoints);
        }

        let missing_lanes: Vec<_> = met.missing_lanes().map(|(_, lane)| lane).collect();
        let missing = missing_lanes.len() + met.missing_replicas();
        client.handle_wanted(u32_of(met.ways.len() + missing), now);
        let is_full = met.sessions >= OWN_PER_PEER;
        let attempt = if missing == 0 {
            client.attempts = 0;
            client.further_way(&met, now).filter(|_| !is_full)
        } else if missing <= met.unknown || now < client.next_attempt {
            None
        } else {
            // In turns: one that never answers must not keep others from being met.
            let turn = client.attempts as usize % missing_lanes.len().max(1);
            if client.handle_attempt(now) {
                self.drops.count(Drop::ReplicaAttempts);
            }
            let lane = missing_lanes.get(turn).copied();
            let lane = lane.unwrap_or_else(|| met.lane_of_unmet());
            if is_full {
                self.drops.count(Drop::SessionLimit);
            }
            let target = client.endpoints.next().filter(|_| !is_full);
            target.map(|target| (target, lane))
        };
        let surplus = met.into_surplus();
        self.close(&surplus, now);
        if let Some((target, lane)) = attempt {
            self.open(index, target, lane, now);
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

fn u32_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
