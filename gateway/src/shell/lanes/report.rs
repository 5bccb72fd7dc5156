//! Aggregates the reports of the lanes.

use crate::engine::ConnectionState;
use crate::engine::snapshot::{PeerSnapshot, Snapshot};
use crate::shell::lane::Report;
use std::collections::BTreeMap;

/// Returns a report about the whole gateway; `None` if `reports` is empty.
pub(super) fn aggregate(mut reports: Vec<Report>) -> Option<Report> {
    // The first lane provides all values that cannot be added, such as the kinds of peers.
    reports.sort_by_key(|report| report.lane);
    reports.into_iter().reduce(|mut all, other| {
        all.stats.add(&other.stats);
        all.ports += other.ports;
        all.engine = add_engine(all.engine, other.engine);
        all
    })
}

fn add_engine(mut all: Snapshot, other: Snapshot) -> Snapshot {
    all.leaving |= other.leaving;
    for (reason, count) in other.drops {
        *all.drops.entry(reason).or_default() += count;
    }
    let mut peers: BTreeMap<u16, PeerSnapshot> = BTreeMap::new();
    for peer in all.peers.into_iter().chain(other.peers) {
        match peers.get_mut(&peer.index) {
            Some(known) => add_peer(known, peer),
            None => {
                peers.insert(peer.index, peer);
            }
        }
    }
    all.peers = peers.into_values().collect();

    all
}

fn add_peer(all: &mut PeerSnapshot, other: PeerSnapshot) {
    let is_better = rank(other.connection) > rank(all.connection);
    if is_better {
        all.connection = other.connection;
        all.latency = other.latency;
    } else {
        all.latency = all.latency.or(other.latency);
    }
    all.served |= other.served;
    all.version = all.version.take().or(other.version);
    all.queued_bytes += other.queued_bytes;
    all.sessions.extend(other.sessions);
    all.sessions.sort_by_key(|session| session.lane);
}

/// Returns the rank of a state; the state of the gateway is the highest-ranking state of its lanes.
///
/// `Connected` has the highest rank, since the gateway sends packets through connected lanes only.
pub(super) fn rank(state: ConnectionState) -> u8 {
    match state {
        ConnectionState::Connecting => 0,
        ConnectionState::Error => 1,
        ConnectionState::Connected => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Kind, LaneId};
    use crate::shell::lane::Stats;
    use std::time::Duration;

    fn peer(index: u16, connection: ConnectionState) -> PeerSnapshot {
        let is_connected = connection == ConnectionState::Connected;
        PeerSnapshot {
            index,
            cluster_id: format!("peer-{index}"),
            role: "server",
            kind: Kind::Ours,
            version: None,
            served: is_connected,
            connection,
            latency: is_connected.then_some(Duration::from_millis(1)),
            queued_bytes: 10,
            sessions: Vec::new(),
        }
    }

    fn report(lane: u8, peers: Vec<PeerSnapshot>, drops: &[(&'static str, u64)]) -> Report {
        Report {
            lane: LaneId::new(lane, 2).unwrap(),
            engine: Snapshot {
                cluster_id: "rome".into(),
                replica: "rome-0".into(),
                leaving: false,
                peers,
                drops: drops.iter().copied().collect(),
            },
            stats: Stats::default(),
            ports: 1,
        }
    }

    #[test]
    fn the_best_state_of_a_peer_in_any_lane_is_reported() {
        let reports = vec![
            report(1, vec![peer(1, ConnectionState::Error)], &[("a", 1)]),
            report(
                0,
                vec![
                    peer(1, ConnectionState::Connected),
                    peer(2, ConnectionState::Connecting),
                ],
                &[("a", 2), ("b", 1)],
            ),
        ];

        let all = aggregate(reports).unwrap();

        assert_eq!(all.ports, 2);
        assert_eq!(all.engine.drops, [("a", 3), ("b", 1)].into());
        let [one, two] = all.engine.peers.as_slice() else {
            panic!("{:?}", all.engine.peers);
        };
        assert_eq!(one.connection, ConnectionState::Connected);
        assert_eq!(one.latency, Some(Duration::from_millis(1)));
        assert!(one.served);
        assert_eq!(one.queued_bytes, 20);
        assert_eq!(two.connection, ConnectionState::Connecting);
    }
}
