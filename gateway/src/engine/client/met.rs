//! Whom the sessions of one lane lead to, and whom they should.

use crate::engine::endpoints::Endpoints;
use crate::engine::interface::{LaneId, SessionId};
use crate::engine::probe::REPLICAS_MAX;
use crate::engine::session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// What is known of the lanes of one of our own peers.
#[derive(Debug)]
pub(super) struct Met<'a> {
    own: LaneId,
    /// At which addresses each lane is met that is to be.
    pub(super) ways: BTreeMap<(&'a str, LaneId), BTreeSet<SocketAddr>>,
    /// The replicas, each with a lane of it.
    replicas: BTreeMap<&'a str, LaneId>,
    /// Sessions that have not told yet whom they lead to.
    pub(super) unknown: usize,
    /// All sessions that this side has opened.
    pub(super) sessions: usize,
    /// Those to lanes that other lanes of ours meet, and those that will not stay in theirs.
    surplus: Vec<(&'a str, SessionId)>,
    /// Those to addresses that are not the peer's any more.
    stale: Vec<SessionId>,
    /// Those to replicas beyond the number that is believed.
    crowd: Vec<SessionId>,
    /// How many replicas there are, by what they say.
    told: u32,
}

impl<'a> Met<'a> {
    /// Creates what is known without any session of `own` lane.
    pub(super) fn new(own: LaneId) -> Self {
        Self {
            own,
            ways: BTreeMap::new(),
            replicas: BTreeMap::new(),
            unknown: 0,
            sessions: 0,
            surplus: Vec::new(),
            stale: Vec::new(),
            crowd: Vec::new(),
            told: 1,
        }
    }

    /// Takes in a session.
    pub(super) fn note(&mut self, session: &'a Session, endpoints: &Endpoints) {
        self.told = self.told.max(session.replicas.min(REPLICAS_MAX));
        let Some(target) = session.target.filter(|_| session.is_own()) else {
            return;
        };
        self.sessions += 1;
        if !endpoints.contains(target) {
            return self.stale.push(session.id);
        }
        let Some(replica) = session.replica.as_deref() else {
            return self.unknown += 1;
        };
        self.meet(replica, session.remote_lane, session, target);
    }

    fn meet(&mut self, replica: &'a str, lane: LaneId, session: &Session, target: SocketAddr) {
        let is_known = self.replicas.contains_key(replica);
        if !is_known && self.replicas.len() >= REPLICAS_MAX as usize {
            return self.crowd.push(session.id);
        }
        self.replicas.insert(replica, lane);
        if self.own.meets(lane) && session.is_settled() {
            self.ways.entry((replica, lane)).or_default().insert(target);
        } else {
            self.surplus.push((replica, session.id));
        }
    }

    /// Returns the lanes that are to be met and are not, of replicas that are.
    pub(super) fn missing_lanes(&self) -> impl Iterator<Item = (&'a str, LaneId)> {
        self.replicas.iter().flat_map(|(replica, like)| {
            let lanes = LaneId::all(like.of()).filter(|lane| self.own.meets(*lane));
            lanes
                .map(|lane| (*replica, lane))
                .filter(|met| !self.ways.contains_key(met))
        })
    }

    /// How many replicas are not met in any lane.
    pub(super) fn missing_replicas(&self) -> usize {
        (self.told as usize).saturating_sub(self.replicas.len())
    }

    /// Returns the lane to look for of a replica that was not met: it has as many as others, most
    /// likely.
    pub(super) fn lane_of_unmet(&self) -> LaneId {
        let like = self.replicas.values().next();
        like.map_or(LaneId::ONLY, |like| self.own.counterpart(*like))
    }

    /// Returns the sessions to give up: none before there are better ones.
    pub(super) fn into_surplus(self) -> Vec<SessionId> {
        let missing: BTreeSet<_> = self.missing_lanes().map(|(replica, _)| replica).collect();
        let is_whole = missing.is_empty() && self.missing_replicas() == 0;
        let surplus = self.surplus.iter();
        let surplus = surplus.filter(|(replica, _)| !missing.contains(replica));
        let stale = self.stale.iter().filter(|_| is_whole);

        let all = surplus.map(|(_, id)| id).chain(stale).chain(&self.crowd);
        all.copied().collect()
    }
}
