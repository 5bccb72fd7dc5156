//! Determines which remote replica and lane each session of a peer reaches, and which replicas and
//! lanes have no session.

use crate::engine::endpoints::Endpoints;
use crate::engine::interface::{LaneId, SessionId};
use crate::engine::probe::REPLICAS_MAX;
use crate::engine::session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The remote replicas and lanes that the sessions of one local lane reach.
#[derive(Debug)]
pub(super) struct Discovery<'a> {
    own: LaneId,
    /// Remote addresses of the sessions to each remote lane that pairs with `own` (see
    /// [`LaneId::pairs_with`]).
    pub(super) paths: BTreeMap<(&'a str, LaneId), BTreeSet<SocketAddr>>,
    /// The endpoint of the node on which each replica runs, if the peer has this endpoint.
    direct: BTreeMap<&'a str, SocketAddr>,
    /// The discovered replicas, each with one of its lanes.
    replicas: BTreeMap<&'a str, LaneId>,
    /// Number of sessions whose remote replica has not replied yet.
    pub(super) unknown: usize,
    /// Number of sessions that this side has opened.
    pub(super) sessions: usize,
    /// Sessions to remote lanes that do not pair with `own`, and sessions that the next handshake
    /// would move to another remote lane.
    surplus: Vec<(&'a str, SessionId)>,
    /// Sessions to addresses that are no longer endpoints of the peer.
    stale: Vec<SessionId>,
    /// Sessions to replicas beyond [`REPLICAS_MAX`].
    excess: Vec<SessionId>,
    /// Highest number of replicas that a remote replica advertises.
    advertised: u32,
}

impl<'a> Discovery<'a> {
    pub(super) fn new(own: LaneId) -> Self {
        Self {
            own,
            paths: BTreeMap::new(),
            direct: BTreeMap::new(),
            replicas: BTreeMap::new(),
            unknown: 0,
            sessions: 0,
            surplus: Vec::new(),
            stale: Vec::new(),
            excess: Vec::new(),
            advertised: 1,
        }
    }

    pub(super) fn note_session(&mut self, session: &'a Session, endpoints: &Endpoints) {
        self.advertised = self.advertised.max(session.replicas.min(REPLICAS_MAX));
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
        let address = session.place.as_ref().map(|place| place.address());
        let direct = address.map(|address| SocketAddr::new(address, endpoints.port()));
        if let Some(direct) = direct.filter(|it| endpoints.contains(*it)) {
            self.direct.insert(replica, direct);
        }
        self.note_lane(replica, session.remote_lane, session, target);
    }

    fn note_lane(&mut self, replica: &'a str, lane: LaneId, session: &Session, target: SocketAddr) {
        let is_known = self.replicas.contains_key(replica);
        if !is_known && self.replicas.len() >= REPLICAS_MAX as usize {
            return self.excess.push(session.id);
        }
        self.replicas.insert(replica, lane);
        if self.own.pairs_with(lane) && session.is_settled() {
            self.paths
                .entry((replica, lane))
                .or_default()
                .insert(target);
        } else {
            self.surplus.push((replica, session.id));
        }
    }

    /// Returns the lanes of discovered replicas that pair with `own` and have no session.
    pub(super) fn missing_lanes(&self) -> impl Iterator<Item = (&'a str, LaneId)> {
        self.replicas.iter().flat_map(|(replica, like)| {
            let lanes = LaneId::all(like.of()).filter(|lane| self.own.pairs_with(*lane));
            lanes
                .map(|lane| (*replica, lane))
                .filter(|lane| !self.paths.contains_key(lane))
        })
    }

    /// Returns a lane without a session to the address of its replica's node, and this address.
    pub(super) fn missing_direct(&self) -> Option<(SocketAddr, LaneId)> {
        self.paths.iter().find_map(|((replica, lane), paths)| {
            let direct = self.direct.get(replica)?;
            (!paths.contains(direct)).then_some((*direct, *lane))
        })
    }

    /// Returns the number of advertised replicas that are not discovered yet.
    pub(super) fn missing_replicas(&self) -> usize {
        (self.advertised as usize).saturating_sub(self.replicas.len())
    }

    /// Returns the remote lane with which to open a session in order to discover a further replica.
    /// All replicas of a peer are assumed to have the same number of lanes.
    pub(super) fn lane_of_undiscovered(&self) -> LaneId {
        let like = self.replicas.values().next();
        like.map_or(LaneId::ONLY, |like| self.own.counterpart(*like))
    }

    /// Returns the sessions to close. A surplus session is kept until its replica has a session in
    /// every lane. A stale session is kept until every advertised replica has a session in every
    /// lane. Excess sessions are closed at once.
    pub(super) fn into_surplus(self) -> Vec<SessionId> {
        let missing: BTreeSet<_> = self.missing_lanes().map(|(replica, _)| replica).collect();
        let is_complete = missing.is_empty() && self.missing_replicas() == 0;
        let surplus = self.surplus.iter();
        let surplus = surplus.filter(|(replica, _)| !missing.contains(replica));
        let stale = self.stale.iter().filter(|_| is_complete);

        let all = surplus.map(|(_, id)| id).chain(stale).chain(&self.excess);
        all.copied().collect()
    }
}
