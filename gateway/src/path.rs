//! Where the way from this cluster's nodes to a peer's is broken: PURE.
//!
//! ```text
//!  node --overlay-- this gateway --tunnel-- its gateway --overlay-- its nodes
//!       seen by probes          by PING     by what its PONG tells
//!  `---------------- seen by the checks of the nodes, end to end ----------'
//! ```
//! The first broken part is named: what lies behind it cannot be told from here. A fault is
//! told at once, that it has passed only after a while, so that one that comes and goes
//! costs few writes.

use crate::engine::{ConnectionState, Kind, Nodes, Signs};
use control_api::fabric::Node;
use ebpf_common::probe::{Sighting, digest};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

mod overlay;
mod tunnel;
mod verdict;

pub(crate) use overlay::{Overlay, is_known_to_all};
pub(crate) use tunnel::Way;
pub(crate) use verdict::{Reason, Verdict};

/// Between two looks at what the nodes have said: with 5,000 nodes one takes 10 ms, 1 % of a core.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// How long after the tunnel has come up the nodes' checks do not count: those that failed before
/// are repeated within this.
const SETTLE: Duration = Duration::from_secs(3);

/// How many looks in a row must find a failed check: what a node says may be a second old.
const LOOKS: u8 = 2;

/// How long all must have been well before that is told.
const HEAL: Duration = Duration::from_secs(2);

/// The least time between two faults that are told of one peer.
const CHANGE_GAP: Duration = Duration::from_secs(3);

/// What is known of the way to each peer.
#[derive(Debug)]
pub(crate) struct Paths {
    /// This replica's name.
    replica: String,
    nodes: overlay::Nodes,
    peers: BTreeMap<String, Peer>,
}

/// A peer, as far as the way to it goes.
#[derive(Debug)]
struct Peer {
    tunnel: tunnel::Tunnel,
    kind: Kind,
    remote: Option<Nodes>,
    /// Whether our nodes have an address there to check.
    is_checked: bool,
    /// Names of our nodes whose checks fail, and in how many looks in a row some did.
    lost: Vec<String>,
    looks: u8,
    told: Option<Told>,
    /// Since when all is well while a fault is told.
    well_since: Option<Instant>,
}

#[derive(Debug)]
struct Told {
    verdict: Verdict,
    at: Instant,
}

impl Paths {
    /// Creates one that knows nothing yet.
    pub(crate) fn new(replica: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            nodes: overlay::Nodes::default(),
            peers: BTreeMap::new(),
        }
    }

    /// Sets the peers, the way to each, and whether our nodes have an address to check there.
    pub(crate) fn set_peers<'a>(
        &mut self,
        peers: impl IntoIterator<Item = (&'a str, Way, bool)>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.peers);
        for (cluster_id, way, is_checked) in peers {
            let before = before.remove(cluster_id);
            let mut peer = before.unwrap_or_else(|| Peer::new(way.clone(), now));
            peer.tunnel.set_way(way);
            peer.is_checked = is_checked;
            self.peers.insert(cluster_id.to_owned(), peer);
        }
    }

    /// Notes the state of the tunnel to a peer.
    pub(crate) fn note_connection(
        &mut self,
        cluster_id: &str,
        connection: ConnectionState,
        now: Instant,
    ) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_state(connection, now);
        }
    }

    /// Notes what comes of the handshakes with a peer that is not connected.
    pub(crate) fn note_signs(&mut self, cluster_id: &str, signs: Signs, now: Instant) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_signs(signs, now);
        }
    }

    /// Notes that the keys of a peer or ours for it were changed.
    pub(crate) fn note_rekeyed(&mut self, cluster_id: &str) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_rekeyed();
        }
    }

    /// Notes what became of looking up a name of a peer: why it failed, if it did.
    pub(crate) fn note_lookup(
        &mut self,
        cluster_id: &str,
        host: &str,
        outcome: Result<(), String>,
    ) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_lookup(host, outcome);
        }
    }

    /// Notes what a peer runs, and how its nodes fare.
    pub(crate) fn note_remote(&mut self, cluster_id: &str, kind: Kind, nodes: Option<Nodes>) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.kind = kind;
            peer.remote = nodes;
        }
    }

    /// Takes in the nodes there are and what the probes of each have said last.
    pub(crate) fn look(
        &mut self,
        nodes: &[Node],
        sightings: &BTreeMap<Ipv4Addr, (Duration, Sighting)>,
        now: Instant,
    ) {
        self.nodes.update(nodes, sightings, now);

        let ids: Vec<&String> = self.peers.keys().collect();
        let same = digest(ids.iter().map(|id| id.as_str()));
        let mut lost: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (name, sighting) in self.nodes.checking(sightings) {
            if sighting.digest() == same {
                for rank in sighting.lost() {
                    lost.entry(rank).or_default().push(name.to_owned());
                }
            }
        }
        for (rank, peer) in self.peers.values_mut().enumerate() {
            peer.lost = lost.remove(&rank).unwrap_or_default();
            let is_some = !peer.lost.is_empty();
            peer.looks = if is_some {
                peer.looks.saturating_add(1)
            } else {
                0
            };
        }
    }

    /// Returns what the peers are to be told of our nodes.
    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes.summary()
    }

    /// Returns the nodes whose overlay is not well, and what is wrong.
    pub(crate) fn ill_nodes(&self) -> impl Iterator<Item = (&str, Overlay)> {
        self.nodes.ill()
    }

    /// Returns what is to be told of peers from now on, where that is news.
    pub(crate) fn poll_news(&mut self, now: Instant) -> Vec<(String, Verdict)> {
        let (replica, nodes) = (&self.replica, &self.nodes);
        let peers = self.peers.iter_mut();
        peers
            .filter_map(|(cluster_id, peer)| {
                let verdict = verdict::judge(&verdict::Evidence {
                    replica,
                    cluster_id,
                    nodes,
                    tunnel: peer.tunnel.judge(replica, cluster_id, now),
                    kind: peer.kind,
                    remote: peer.remote,
                    is_checked: peer.is_checked,
                    lost: peer.lost_by(now),
                });
                let is_news = peer.tell(&verdict, now);
                is_news.then(|| (cluster_id.clone(), verdict))
            })
            .collect()
    }
}

impl Peer {
    fn new(way: Way, now: Instant) -> Self {
        Self {
            tunnel: tunnel::Tunnel::new(way, now),
            kind: Kind::Unknown,
            remote: None,
            is_checked: false,
            lost: Vec::new(),
            looks: 0,
            told: None,
            well_since: None,
        }
    }

    /// Returns the nodes whose checks count as failed.
    fn lost_by(&self, now: Instant) -> &[String] {
        let is_settled = self.tunnel.age(now) >= SETTLE;
        if is_settled && self.looks >= LOOKS {
            &self.lost
        } else {
            &[]
        }
    }

    /// Returns whether to tell that `verdict` is what is found.
    fn tell(&mut self, verdict: &Verdict, now: Instant) -> bool {
        let is_well = verdict.reason.is_well();
        let well_since = *self.well_since.get_or_insert(now);
        if !is_well {
            self.well_since = None;
        }
        let Some(told) = &mut self.told else {
            self.told = Some(Told {
                verdict: verdict.clone(),
                at: now,
            });
            return verdict.reason != Reason::Connecting;
        };

        let age = now.saturating_duration_since(told.at);
        let may_change = match (told.verdict.reason.is_fault(), verdict.reason.is_fault()) {
            (false, _) => true,
            (true, false) => !is_well || now.saturating_duration_since(well_since) >= HEAL,
            (true, true) => age >= CHANGE_GAP,
        };
        let is_news = told.verdict != *verdict && may_change;
        if is_news {
            *told = Told {
                verdict: verdict.clone(),
                at: now,
            };
        }

        is_news
    }
}

#[cfg(test)]
mod tests;
