//! Evaluates the health of the path from this cluster's nodes to the nodes of each peer. PURE: no
//! IO, clock or randomness.
//!
//! ```text
//!  node --overlay-- this gateway --tunnel-- remote gateway --overlay-- remote nodes
//!         overlay probes          PING / PONG       advertised in PONG
//!  `-------------------- end-to-end checks of the nodes ------------------------'
//! ```
//! The verdict names one broken segment. The tunnel is checked first, then the local overlay, the
//! remote overlay, and the nodes. A new fault is reported at once. The end of a fault is reported
//! after a delay, so that an intermittent fault causes few writes to the API server.

use crate::engine::{ConnectionState, HandshakeEvidence, Kind, Nodes};
use control_fabric::{List, Node};
use ebpf_common::probe::{LastRequest, digest};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

mod overlay;
mod tunnel;
mod verdict;

pub(crate) use overlay::{Overlay, is_known_to_all};
pub(crate) use tunnel::TunnelRole;
pub(crate) use verdict::{Reason, Verdict};

/// Interval of the checks. With 5,000 nodes a check takes 10 ms, which is 1 % of a core.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Time after the connection is established during which failed end-to-end checks are ignored. They
/// may have failed before the connection existed.
const SETTLE: Duration = Duration::from_secs(3);

/// Number of consecutive checks with failing nodes that make a fault. One check is not enough,
/// because a node's report may be a second old.
const FAILED_MIN: u8 = 2;

/// Time without a fault after which the path is reported as healthy.
const HEAL: Duration = Duration::from_secs(2);

/// Minimum time between two reports of different faults of one peer.
const CHANGE_GAP: Duration = Duration::from_secs(3);

/// Health of the paths to all peers, as this replica observes it.
#[derive(Debug)]
pub(crate) struct Paths {
    replica: String,
    nodes: overlay::Nodes,
    peers: BTreeMap<String, Peer>,
}

/// Observations of the path to one peer.
#[derive(Debug)]
struct Peer {
    tunnel: tunnel::Tunnel,
    kind: Kind,
    remote: Option<Nodes>,
    /// Whether the nodes of this cluster run end-to-end checks to the remote cluster.
    is_checked: bool,
    /// Names of the local nodes whose end-to-end checks fail.
    failing: Vec<String>,
    /// Number of consecutive checks in which `failing` was not empty.
    failed_checks: u8,
    reported: Option<Reported>,
    /// Start of the current time without a fault; `None` during a fault.
    healthy_since: Option<Instant>,
}

#[derive(Debug)]
struct Reported {
    verdict: Verdict,
    at: Instant,
}

impl Paths {
    pub(crate) fn new(replica: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            nodes: overlay::Nodes::default(),
            peers: BTreeMap::new(),
        }
    }

    /// Sets the peers as (cluster id, tunnel role, whether local nodes run end-to-end checks). A
    /// peer that is already known keeps its observations.
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

    /// Records the connection state of the tunnel to a peer.
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

    /// Records the handshake evidence of a peer that is not connected.
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

    /// Records a change of the peer's public key, or of the local private key for the peer.
    pub(crate) fn note_rekeyed(&mut self, cluster_id: &str) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.tunnel.note_rekeyed();
        }
    }

    /// Records the result of a DNS lookup of an endpoint of a peer.
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

    /// Records a peer's kind, and the health of its nodes.
    pub(crate) fn note_remote(&mut self, cluster_id: &str, kind: Kind, nodes: Option<Nodes>) {
        if let Some(peer) = self.peers.get_mut(cluster_id) {
            peer.kind = kind;
            peer.remote = nodes;
        }
    }

    /// Evaluates the last overlay probe of each node. `last_requests` holds the age and the content
    /// of that probe, by the node's address.
    pub(crate) fn check(
        &mut self,
        nodes: &List<Node>,
        last_requests: &BTreeMap<Ipv4Addr, (Duration, LastRequest)>,
        now: Instant,
    ) {
        self.nodes.update(nodes, last_requests, now);

        let ids: Vec<&String> = self.peers.keys().collect();
        let digest = digest(ids.iter().map(|id| id.as_str()));
        let mut failing: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (name, last_request) in self.nodes.checking(last_requests) {
            // A node reports failed checks by rank in its list of clusters. The ranks are valid
            // only if the digests of both lists are equal.
            if last_request.digest() == digest {
                for rank in last_request.lost() {
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

    /// Returns the health of this cluster's nodes, which PONGs advertise to the peers.
    pub(crate) fn nodes(&self) -> Nodes {
        self.nodes.summary()
    }

    /// Returns the nodes whose overlay state is not [`Overlay::Healthy`].
    pub(crate) fn unhealthy_nodes(&self) -> impl Iterator<Item = (&str, Overlay)> {
        self.nodes.unhealthy()
    }

    /// Returns the verdicts that must be reported now, with the cluster id of their peer.
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

    /// Returns the local nodes whose end-to-end checks fail. Returns an empty list until [`SETTLE`]
    /// has passed and [`FAILED_MIN`] consecutive checks have found failures.
    fn failing_at(&self, now: Instant) -> &[String] {
        let is_settled = self.tunnel.age(now) >= SETTLE;
        if is_settled && self.failed_checks >= FAILED_MIN {
            &self.failing
        } else {
            &[]
        }
    }

    /// Records the current verdict, and returns whether it must be reported.
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
