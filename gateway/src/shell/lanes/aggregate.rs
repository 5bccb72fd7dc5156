//! Aggregates the notices of all lanes into notices about the whole gateway.

use super::report::rank;
use crate::engine::{ConnectionState, Kind, LaneId};
use crate::shell::lane::{Command, Notice};
use std::collections::{BTreeMap, BTreeSet};

/// The state that the lanes have reported.
#[derive(Debug, Default)]
pub(crate) struct Aggregate {
    /// Connection state by peer index, then by lane.
    connections: BTreeMap<u16, BTreeMap<LaneId, ConnectionState>>,
    /// Lanes that have sent [`Notice::Drained`].
    drained: BTreeSet<LaneId>,
    /// Kind (upstream Liqo or this project) by peer index. Only the first lane detects the kind.
    kinds: BTreeMap<u16, Kind>,
}

/// The result of a lane's notice: a notice about the whole gateway, and commands for the lanes.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) notice: Option<Notice>,
    /// A command for all lanes except the first.
    pub(crate) others: Option<Command>,
    /// A command for the first lane.
    pub(crate) first: Option<Command>,
}

impl Aggregate {
    /// Handles the notice of a lane.
    ///
    /// Ignores the kind of a peer and the evidence from handshakes in notices of lanes other than
    /// the first, because only the first lane detects them.
    pub(crate) fn handle(&mut self, lane: LaneId, notice: Notice) -> Outcome {
        let pass = |notice| Outcome {
            notice: Some(notice),
            ..Outcome::default()
        };
        match notice {
            Notice::Resolve { .. } => pass(notice),
            Notice::Connection {
                peer,
                state,
                latency,
            } => {
                let (before, state) = self.note(lane, peer, state);
                // Every lane reports the latency periodically, but the reports of one lane suffice.
                if before == Some(state) && self.best(peer) != Some(lane) {
                    return Outcome::default();
                }
                pass(Notice::Connection {
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
            Notice::HandshakeEvidence { .. } if lane.is_first() => pass(notice),
            Notice::Remote { .. } | Notice::HandshakeEvidence { .. } => Outcome::default(),
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

    /// Returns a command with the kinds of all peers, for all lanes except the first.
    ///
    /// The caller sends the command periodically, since a full queue may have dropped an earlier
    /// command.
    pub(crate) fn kinds(&self) -> Option<Command> {
        let kinds = self.kinds.iter().map(|(peer, kind)| (*peer, *kind));
        (!self.kinds.is_empty()).then(|| Command::Kinds(kinds.collect()))
    }

    /// Discards the state of removed peers.
    pub(crate) fn retain(&mut self, is_peer: impl Fn(u16) -> bool) {
        self.connections.retain(|peer, _| is_peer(*peer));
        self.kinds.retain(|peer, _| is_peer(*peer));
    }

    /// Stores the connection state that `lane` reports for `peer`.
    ///
    /// Returns the state of the peer in the whole gateway, before and after the change.
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

    /// Returns the first lane in which the peer's state equals that of the whole gateway.
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
        aggregate: &mut Aggregate,
        number: u8,
        state: ConnectionState,
    ) -> Option<ConnectionState> {
        let notice = Notice::Connection {
            peer: 7,
            state,
            latency: None,
        };
        let notice = aggregate.handle(lane(number), notice).notice?;
        let Notice::Connection { state, .. } = notice else {
            panic!("{notice:?}");
        };
        Some(state)
    }

    #[test]
    fn a_gateway_is_connected_while_one_lane_is_and_reports_changes_once() {
        let mut aggregate = Aggregate::default();

        assert_eq!(connection(&mut aggregate, 1, Connected), Some(Connected));
        assert_eq!(connection(&mut aggregate, 0, Connected), Some(Connected));
        assert_eq!(connection(&mut aggregate, 1, Connected), None);
        assert_eq!(connection(&mut aggregate, 0, Error), None);
        assert_eq!(connection(&mut aggregate, 1, Connected), Some(Connected));
        assert_eq!(connection(&mut aggregate, 1, Error), Some(Error));
        aggregate.retain(|_| false);
        assert_eq!(connection(&mut aggregate, 0, Connected), Some(Connected));
    }

    #[test]
    fn the_first_lane_detects_the_kind_of_a_peer_for_the_others() {
        let mut aggregate = Aggregate::default();
        let remote = |kind| Notice::Remote {
            peer: 7,
            kind,
            nodes: None,
        };

        let outcome = aggregate.handle(lane(0), remote(Kind::Ours));
        assert!(outcome.notice.is_some());
        for others in [outcome.others, aggregate.kinds()] {
            let Some(Command::Kinds(kinds)) = others else {
                panic!("no command for other lanes");
            };
            assert_eq!(kinds, [(7, Kind::Ours)]);
        }
        let outcome = aggregate.handle(lane(1), remote(Kind::Unknown));
        assert!(outcome.notice.is_none() && outcome.others.is_none());
        let only = aggregate.handle(LaneId::ONLY, remote(Kind::Ours));
        assert!(only.notice.is_some() && only.others.is_none());
    }

    #[test]
    fn all_lanes_must_have_drained() {
        let mut aggregate = Aggregate::default();

        assert!(aggregate.handle(lane(1), Notice::Drained).notice.is_none());
        assert!(aggregate.handle(lane(1), Notice::Drained).notice.is_none());
        assert!(aggregate.handle(lane(0), Notice::Drained).notice.is_some());
    }
}
