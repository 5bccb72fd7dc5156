//! Joins what the lanes tell into what one gateway tells.

use super::report::rank;
use crate::engine::{ConnectionState, Kind, LaneId};
use crate::shell::lane::{Command, Notice};
use std::collections::{BTreeMap, BTreeSet};

/// What the lanes have told.
#[derive(Debug, Default)]
pub(crate) struct Joint {
    /// State of each peer's connection, by lane.
    connections: BTreeMap<u16, BTreeMap<LaneId, ConnectionState>>,
    drained: BTreeSet<LaneId>,
    /// What peers run, for lanes that cannot find out.
    kinds: BTreeMap<u16, Kind>,
}

/// What follows from a notice.
#[derive(Default)]
pub(crate) struct Outcome {
    /// What the gateway tells.
    pub(crate) notice: Option<Notice>,
    /// What the other lanes have to know.
    pub(crate) others: Option<Command>,
    /// What the first lane has to do.
    pub(crate) first: Option<Command>,
}

impl Joint {
    /// Takes in what a lane tells.
    ///
    /// What the peer runs, and what comes of handshakes while nothing is connected, the first
    /// lane finds out.
    pub(crate) fn handle(&mut self, lane: LaneId, notice: Notice) -> Outcome {
        let told = |notice| Outcome {
            notice: Some(notice),
            ..Outcome::default()
        };
        match notice {
            Notice::Resolve { .. } => told(notice),
            Notice::Connection {
                peer,
                state,
                latency,
            } => {
                let (before, state) = self.note(lane, peer, state);
                // Every lane measures the way again and again: one is enough to tell.
                if before == Some(state) && self.best(peer) != Some(lane) {
                    return Outcome::default();
                }
                told(Notice::Connection {
                    peer,
                    state,
                    latency,
                })
            }
            Notice::Remote { peer, kind, .. } if lane.is_first() => {
                if lane.of() > 1 {
                    self.kinds.insert(peer, kind);
                }
                Outcome {
                    notice: Some(notice),
                    others: (lane.of() > 1).then(|| Command::Kinds(vec![(peer, kind)])),
                    first: None,
                }
            }
            Notice::Signs { .. } if lane.is_first() => told(notice),
            Notice::Remote { .. } | Notice::Signs { .. } => Outcome::default(),
            Notice::Initiation {
                local,
                from,
                datagram,
            } => Outcome {
                first: Some(Command::Initiation {
                    local,
                    from,
                    datagram,
                }),
                ..Outcome::default()
            },
            Notice::Drained => {
                self.drained.insert(lane);
                let all = self.drained.len() >= usize::from(lane.of());
                Outcome {
                    notice: all.then_some(Notice::Drained),
                    ..Outcome::default()
                }
            }
        }
    }

    /// Returns what lanes other than the first have to know, to be told again and again: what they
    /// were told may have been lost.
    pub(crate) fn kinds(&self) -> Option<Command> {
        let kinds = self.kinds.iter().map(|(peer, kind)| (*peer, *kind));
        (!self.kinds.is_empty()).then(|| Command::Kinds(kinds.collect()))
    }

    /// Forgets those that are no peers any more.
    pub(crate) fn retain(&mut self, is_peer: impl Fn(u16) -> bool) {
        self.connections.retain(|peer, _| is_peer(*peer));
        self.kinds.retain(|peer, _| is_peer(*peer));
    }

    /// Notes a lane's state; returns the gateway's before and after.
    fn note(
        &mut self,
        lane: LaneId,
        peer: u16,
        state: ConnectionState,
    ) -> (Option<ConnectionState>, ConnectionState) {
        let lanes = self.connections.entry(peer).or_default();
        let before = lanes.values().copied().max_by_key(|it| rank(*it));
        lanes.insert(lane, state);
        let after = lanes.values().copied().max_by_key(|it| rank(*it));

        (before, after.unwrap_or(state))
    }

    /// The first of the lanes whose state is the gateway's.
    fn best(&self, peer: u16) -> Option<LaneId> {
        let lanes = self.connections.get(&peer)?;
        let best = lanes.values().map(|state| rank(*state)).max()?;
        let mut lanes = lanes.iter();

        lanes
            .find(|(_, state)| rank(**state) == best)
            .map(|(lane, _)| *lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConnectionState::{Connected, Error};

    fn lane(number: u8) -> LaneId {
        LaneId::new(number, 2).unwrap()
    }

    fn connection(
        joint: &mut Joint,
        number: u8,
        state: ConnectionState,
    ) -> Option<ConnectionState> {
        let notice = Notice::Connection {
            peer: 7,
            state,
            latency: None,
        };
        let told = joint.handle(lane(number), notice).notice?;
        let Notice::Connection { state, .. } = told else {
            panic!("{told:?}");
        };
        Some(state)
    }

    #[test]
    fn a_gateway_is_connected_as_long_as_one_lane_is_and_says_so_once() {
        let mut joint = Joint::default();

        assert_eq!(connection(&mut joint, 1, Connected), Some(Connected));
        assert_eq!(connection(&mut joint, 0, Connected), Some(Connected));
        assert_eq!(connection(&mut joint, 1, Connected), None);
        assert_eq!(connection(&mut joint, 0, Error), None);
        assert_eq!(connection(&mut joint, 1, Connected), Some(Connected));
        assert_eq!(connection(&mut joint, 1, Error), Some(Error));
        joint.retain(|_| false);
        assert_eq!(connection(&mut joint, 0, Connected), Some(Connected));
    }

    #[test]
    fn the_first_lane_finds_out_what_a_peer_runs_and_the_others_are_told() {
        let mut joint = Joint::default();
        let remote = |kind| Notice::Remote {
            peer: 7,
            kind,
            nodes: None,
        };

        let outcome = joint.handle(lane(0), remote(Kind::Ours));
        assert!(outcome.notice.is_some());
        for others in [outcome.others, joint.kinds()] {
            let Some(Command::Kinds(kinds)) = others else {
                panic!("nothing for other lanes");
            };
            assert_eq!(kinds, [(7, Kind::Ours)]);
        }
        let outcome = joint.handle(lane(1), remote(Kind::Unknown));
        assert!(outcome.notice.is_none() && outcome.others.is_none());
        let only = joint.handle(LaneId::ONLY, remote(Kind::Ours));
        assert!(only.notice.is_some() && only.others.is_none());
    }

    #[test]
    fn all_lanes_must_have_drained() {
        let mut joint = Joint::default();

        assert!(joint.handle(lane(1), Notice::Drained).notice.is_none());
        assert!(joint.handle(lane(1), Notice::Drained).notice.is_none());
        assert!(joint.handle(lane(0), Notice::Drained).notice.is_some());
    }
}
