//! The health of the path from this cluster's nodes to those of each peer. PURE.
//!
//! ```text
//!  node --overlay-- this gateway --tunnel-- remote gateway --overlay-- remote nodes
//!         overlay probes          PING / PONG       advertised in PONG
//!  `-------------------- end-to-end checks of the nodes ------------------------'
//! ```
//! The verdict names the first broken part, because the parts behind it cannot be observed. A fault is
//! reported at once and its end after a delay, so that an intermittent fault causes few writes.

use crate::engine::{ConnectionState, HandshakeEvidence, Kind, Nodes};
use control_api::fabric::Node;
use ebpf_common::probe::{Sighting, digest};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

mod overlay;
mod tunnel;
mod verdict;

pub(crate) use overlay::{Overlay, is_known_to_all};
pub(crate) use tunnel::TunnelRole;
pub(crate) use verdict::{Reason, Verdict};

/// Interval of the checks: with 5,000 nodes a check takes 10 ms, 1 % of a core.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Time after a connection during which failed checks of the nodes do not count: they may be older
/// than the connection.
const SETTLE: Duration = Duration::from_secs(3);

/// Consecutive checks that must find a failed one of the nodes: a node's report may be a second old.
const FAILED_MIN: u8 = 2;

/// Time without a fault until the path is reported as healthy.
const HEAL: Duration = Duration::from_secs(2);

/// Least time between two reports of different faults of a peer.
const CHANGE_GAP: Duration = Duration::from_secs(3);

/// The paths to all peers.
#[derive(Debug)]
pub(crate) struct Paths {
    /// This replica's name.
    replica: String,
    nodes: overlay::Nodes,
    peers: BTreeMap<String, Peer>,
}

/// The path to a peer.
#[derive(Debug)]
struct Peer {
    tunnel: tunnel::Tunnel,
    kind: Kind,
    remote: Option<Nodes>,
    /// The nodes of this cluster check an address of the remote cluster.
    is_checked: bool,
    /// Names of the nodes whose checks fail.
    failing: Vec<String>,
    /// Consecutive checks in which `failing` was not empty.
    failed_checks: u8,
    reported: Option<Reported>,
    /// Since when there is no fault.
    healthy_since: Option<Instant>,
}

#[derive(Debug)]
struct Reported {
    verdict: Verdict,
    at: Instant,
}

impl Paths {
    /// Creates one without peers.
    pub(crate) fn new(replica: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            nodes: overlay::Nodes::default(),
            peers: BTreeMap::new(),
        }
    }

    /// Sets the peers, the role in the tunnel to each, and whether the nodes check an address there.
    pub(crate) fn set_peers<'a>(
        &mut self,
        peers: impl IntoIterator<Item = (&'a str, TunnelRole, bool)>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.peers);
        for (cluster_id, role, is_checked) in peers {
            let before = before.remove(cluster_id);
            let mut peer = before.unwrap_or_else(|| Peer::new(role.clone(), now));
            peer.tunnel.set_role(role);
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

    /// Notes the evidence from the handshakes of a peer that is not connected.
    pub(crate) fn note_evidence(
        &mut self,
        cluster_id: &str,
        evidence: HandshakeEvidence,
        now: Instant,
    ) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_evidence(evidence, now);
        }
    }

    /// Notes that the public key of a peer, or our private key for it, changed.
    pub(crate) fn note_rekeyed(&mut self, cluster_id: &str) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_rekeyed();
        }
    }

    /// Notes the result of a name lookup of a peer.
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

    /// Notes a peer's kind and the health of its nodes.
    pub(crate) fn note_remote(&mut self, cluster_id: &str, kind: Kind, nodes: Option<Nodes>) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.kind = kind;
            peer.remote = nodes;
        }
    }

    /// Evaluates the last probe of each node.
    pub(crate) fn check(
        &mut self,
        nodes: &[Node],
        sightings: &BTreeMap<Ipv4Addr, (Duration, Sighting)>,
        now: Instant,
    ) {
        self.nodes.update(nodes, sightings, now);

        let ids: Vec<&String> = self.peers.keys().collect();
        let digest = digest(ids.iter().map(|id| id.as_str()));
        let mut failing: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (name, sighting) in self.nodes.checking(sightings) {
            // Ranks refer to the same list of clusters only if the digests are equal.
            if sighting.digest() == digest {
                for rank in sighting.lost() {
                    failing.entry(rank).or_default().push(name.to_owned());
                }
            }
        }
        for (rank, peer) in self.peers.values_mut().enumerate() {
            peer.failing = failing.remove(&rank).unwrap_or_default();
            peer.failed_checks = if peer.failing.is_empty() {
                0
            } else {
                peer.failed_checks.saturating_add(1)
            };
        }
    }

    /// Returns the health of this cluster's nodes, to be advertised to the peers.
    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes.summary()
    }

    /// Returns the nodes whose overlay state is not [`Overlay::Healthy`].
    pub(crate) fn unhealthy_nodes(&self) -> impl Iterator<Item = (&str, Overlay)> {
        self.nodes.unhealthy()
    }

    /// Returns the verdicts that are to be reported now.
    pub(crate) fn poll_changes(&mut self, now: Instant) -> Vec<(String, Verdict)> {
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
                    failing: peer.failing_at(now),
                });
                let is_due = peer.note_verdict(&verdict, now);
                is_due.then(|| (cluster_id.clone(), verdict))
            })
            .collect()
    }
}

impl Peer {
    fn new(role: TunnelRole, now: Instant) -> Self {
        Self {
            tunnel: tunnel::Tunnel::new(role, now),
            kind: Kind::Unknown,
            remote: None,
            is_checked: false,
            failing: Vec::new(),
            failed_checks: 0,
            reported: None,
            healthy_since: None,
        }
    }

    /// Returns the nodes whose failed checks count.
    fn failing_at(&self, now: Instant) -> &[String] {
        let is_settled = self.tunnel.age(now) >= SETTLE;
        if is_settled && self.failed_checks >= FAILED_MIN {
            &self.failing
        } else {
            &[]
        }
    }

    /// Notes the present verdict; returns whether it is to be reported.
    fn note_verdict(&mut self, verdict: &Verdict, now: Instant) -> bool {
        let is_healthy = verdict.reason.is_healthy();
        let healthy_since = *self.healthy_since.get_or_insert(now);
        if !is_healthy {
            self.healthy_since = None;
        }
        let Some(reported) = &mut self.reported else {
            self.reported = Some(Reported {
                verdict: verdict.clone(),
                at: now,
            });
            return verdict.reason != Reason::Connecting;
        };

        let age = now.saturating_duration_since(reported.at);
        let was_fault = reported.verdict.reason.is_fault();
        let may_change = match (was_fault, verdict.reason.is_fault()) {
            (false, _) => true,
            (true, false) => !is_healthy || now.saturating_duration_since(healthy_since) >= HEAL,
            (true, true) => age >= CHANGE_GAP,
        };
        let is_due = reported.verdict != *verdict && may_change;
        if is_due {
            *reported = Reported {
                verdict: verdict.clone(),
                at: now,
            };
        }

        is_due
    }
}

#[cfg(test)]
mod tests;
