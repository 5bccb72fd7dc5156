//! Determines the state of the overlay between this replica and each node of this cluster.

use crate::engine;
use control_fabric::{List, Node};
use ebpf_common::probe::{HAS_ECHO_RESPONDER, HAS_REPORT, LastRequest, RECEIVES_REPLIES, STOPPING};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Time without a probe after which a node is [`Overlay::Silent`]: eight probes are missing.
const SILENCE: Duration = Duration::from_secs(2);

/// Time limit for the first probe of a node. A new node has to start its route agent first, and the
/// nodes have to discover a new replica.
const ARRIVAL: Duration = Duration::from_secs(30);

/// Time for which a node whose route agent was stopped, for example for an upgrade, is
/// [`Overlay::Resting`].
const REST: Duration = Duration::from_secs(60);

/// A node is [`Overlay::Deaf`] after this number of consecutive checks in which the replies did not
/// reach the node. The first report of a node may be older than the first reply of this replica.
const DEAF_MIN: u8 = 2;

/// The state of the overlay between a node and this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// Probes of the node arrive, and the replies reach the node. If the route agent is too old to
    /// report whether the replies arrive, its probes are sufficient.
    Healthy,
    /// No probe of the node has arrived yet, and [`ARRIVAL`] has not passed.
    New,
    /// The route agent of the node has announced that it stops.
    Resting,
    /// Probes of the node do not arrive.
    Silent,
    /// Probes of the node arrive, but the replies do not reach the node.
    Deaf,
}

impl Overlay {
    /// Returns the state's name in `gateway status` and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "well",
            Self::New => "new",
            Self::Resting => "resting",
            Self::Silent => "silent",
            Self::Deaf => "deaf",
        }
    }

    /// Returns whether packets to or from the node are lost.
    pub(crate) fn is_cut(self) -> bool {
        matches!(self, Self::Silent | Self::Deaf)
    }
}

/// The ready nodes, by name.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    address: Ipv4Addr,
    /// Time since which the node has been ready with this address.
    since: Instant,
    overlay: Overlay,
    /// Number of consecutive checks in which the replies did not reach the node.
    deaf: u8,
    /// Whether the node reports in its probes which replies and end-to-end checks succeed. Earlier
    /// versions of the route agent send no report.
    has_report: bool,
    /// Whether the node runs an echo responder for end-to-end checks.
    has_echo_responder: bool,
}

impl Nodes {
    /// Replaces the set of nodes, and evaluates the last probe of each.
    pub(super) fn update(
        &mut self,
        nodes: &List<Node>,
        last_requests: &BTreeMap<Ipv4Addr, (Duration, LastRequest)>,
        now: Instant,
    ) {
        let mut before = std::mem::take(&mut self.0);
        // Skip nodes that are not ready, because Kubernetes already reports their fault.
        for node in nodes.iter().filter(|node| node.ready) {
            let known = before.remove(&node.name);
            let known = known.filter(|known| known.address == node.internal_ip);
            let (since, deaf) = known.map_or((now, 0), |known| (known.since, known.deaf));
            let seen = last_requests.get(&node.internal_ip);
            let has_flag = |flag| seen.is_some_and(|(_, last_request)| last_request.has_flag(flag));
            let mut overlay = overlay(seen, now.saturating_duration_since(since));
            let is_deaf = overlay == Overlay::Deaf;
            let deaf = if is_deaf { deaf.saturating_add(1) } else { 0 };
            if is_deaf && deaf < DEAF_MIN {
                overlay = Overlay::Healthy;
            }
            let known = Known {
                address: node.internal_ip,
                since,
                overlay,
                deaf,
                has_report: has_flag(HAS_REPORT),
                has_echo_responder: has_flag(HAS_ECHO_RESPONDER),
            };
            self.0.insert(node.name.clone(), known);
        }
    }

    /// Returns the nodes whose end-to-end checks are evaluated, each with its last probe.
    pub(super) fn checking<'a>(
        &'a self,
        last_requests: &'a BTreeMap<Ipv4Addr, (Duration, LastRequest)>,
    ) -> impl Iterator<Item = (&'a str, &'a LastRequest)> {
        self.0
            .iter()
            .filter(|(_, known)| known.overlay == Overlay::Healthy && known.has_report)
            .filter_map(|(name, known)| {
                Some((name.as_str(), &last_requests.get(&known.address)?.1))
            })
    }

    /// Returns the number of nodes whose end-to-end checks are evaluated.
    pub(super) fn checking_count(&self) -> usize {
        let checking = |known: &&Known| known.overlay == Overlay::Healthy && known.has_report;
        self.0.values().filter(checking).count()
    }

    /// Returns the nodes whose state is not [`Overlay::Healthy`].
    pub(super) fn unhealthy(&self) -> impl Iterator<Item = (&str, Overlay)> {
        let unhealthy = self.0.iter();
        let unhealthy = unhealthy.filter(|(_, it)| it.overlay != Overlay::Healthy);
        unhealthy.map(|(name, known)| (name.as_str(), known.overlay))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the summary that PONGs advertise to the peers.
    pub(super) fn summary(&self) -> engine::Nodes {
        let count = |is: fn(Overlay) -> bool| {
            let nodes = self.0.values().filter(|known| is(known.overlay));
            u32::try_from(nodes.count()).unwrap_or(u32::MAX)
        };

        engine::Nodes {
            all: count(|_| true),
            cut: count(Overlay::is_cut),
            resting: count(|overlay| matches!(overlay, Overlay::Resting | Overlay::New)),
            echo_responder: !self.0.is_empty() && {
                let mut probed = self.0.values().filter(|it| it.overlay != Overlay::New);
                probed.all(|known| known.has_echo_responder)
            },
        }
    }
}

/// Returns whether every ready node exchanges probes with this replica. If no node is ready, all nodes have to: an
/// unavailable control plane makes every node unready while its pods keep running. A route agent of an earlier version
/// does not report whether replies arrive. Its probes alone are then sufficient.
pub(crate) fn is_known_to_all(
    nodes: &List<Node>,
    last_requests: &BTreeMap<Ipv4Addr, (Duration, LastRequest)>,
) -> bool {
    let are_all_unready = !nodes.iter().any(|node| node.ready);
    let mut expected = nodes.iter().filter(|node| node.ready || are_all_unready);
    expected.all(|node| {
        let seen = last_requests.get(&node.internal_ip);
        // `last_requests` may still hold probes that this replica received before its process
        // restarted.
        let fresh = seen.filter(|(age, _)| *age < SILENCE);
        fresh.is_some_and(|(_, last_request)| {
            last_request.has_flag(RECEIVES_REPLIES) || !last_request.has_flag(HAS_REPORT)
        })
    })
}

fn overlay(seen: Option<&(Duration, LastRequest)>, known_for: Duration) -> Overlay {
    let Some((age, last_request)) = seen else {
        return if known_for < ARRIVAL {
            Overlay::New
        } else {
            Overlay::Silent
        };
    };

    if last_request.has_flag(STOPPING) && *age < REST {
        Overlay::Resting
    } else if *age >= SILENCE {
        Overlay::Silent
    } else if last_request.has_flag(HAS_REPORT) && !last_request.has_flag(RECEIVES_REPLIES) {
        Overlay::Deaf
    } else {
        Overlay::Healthy
    }
}
