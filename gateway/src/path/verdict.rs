//! The verdict on a path names one broken segment, the cause and the remedy.

use super::overlay::{self, Overlay};
use crate::engine::{Kind, Nodes};
use control_api::networking::connection::reason;
use ebpf_common::settings::ECHO_RESPONDER_PORT;

/// Maximum number of nodes that a message names.
const NAMES_MAX: usize = 3;

/// The health of the path to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reason: Reason,
    /// Message for users: the affected nodes or addresses, the cause and the remedy.
    pub(crate) message: String,
}

/// The broken segment of a path, or the segments that are known to be healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The tunnel has not been established yet.
    Connecting,
    /// The path is healthy from local nodes to remote nodes.
    EndToEnd,
    /// The path is healthy from local nodes to the remote gateways, which do not report the health
    /// of their nodes.
    ToRemoteGateway,
    /// The path is broken between the gateways.
    Tunnel,
    /// The path is broken between the gateways: no handshake of the peer arrives.
    NothingArrives,
    /// The path is broken between the gateways: handshakes of the peer arrive, but the responses
    /// are lost.
    AnswersLost,
    /// The path is broken between the gateways: the peer does not respond to handshakes. Only the
    /// peer, which is the server, can determine the blocked direction.
    NoAnswer,
    /// The gateways' keys do not match.
    KeysDiffer,
    /// No host name of the peer's gateways resolves.
    NameNotResolved,
    /// No local gateway serves the peer.
    NotServed,
    /// The path is broken between this gateway and some local nodes.
    LocalOverlay,
    /// The path is broken between the remote gateways and some of their nodes.
    RemoteOverlay,
    /// The path is broken on some local nodes, before the overlay.
    Node,
    /// End-to-end checks fail on all nodes although overlays and tunnel are healthy.
    NodeToNode,
}

impl Reason {
    /// Returns the value of `reason` in the condition of the Connection object.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::EndToEnd => "EndToEnd",
            Self::ToRemoteGateway => "ToRemoteGateway",
            Self::Tunnel => "Tunnel",
            Self::NothingArrives => reason::NOTHING_ARRIVES,
            Self::AnswersLost => reason::ANSWERS_LOST,
            Self::NoAnswer => reason::NO_ANSWER,
            Self::KeysDiffer => reason::KEYS_DIFFER,
            Self::NameNotResolved => reason::NAME_NOT_RESOLVED,
            Self::NotServed => reason::NOT_SERVED,
            Self::LocalOverlay => "LocalOverlay",
            Self::RemoteOverlay => "RemoteOverlay",
            Self::Node => "Node",
            Self::NodeToNode => "NodeToNode",
        }
    }

    /// Returns whether packets are known to reach at least the remote gateways.
    pub(crate) fn is_healthy(self) -> bool {
        matches!(self, Self::EndToEnd | Self::ToRemoteGateway)
    }

    /// Returns whether the reason concerns only the tunnel of this replica. The tunnels of other
    /// replicas may be healthy.
    pub(crate) fn is_of_tunnel(self) -> bool {
        matches!(
            self,
            Self::Tunnel
                | Self::NothingArrives
                | Self::AnswersLost
                | Self::NoAnswer
                | Self::KeysDiffer
                | Self::NameNotResolved
        )
    }

    /// Returns whether the reason is based on received handshake messages, which other replicas may
    /// not have received.
    pub(crate) fn is_observed(self) -> bool {
        matches!(self, Self::AnswersLost | Self::KeysDiffer)
    }

    /// Returns whether a segment is known to be broken.
    pub(crate) fn is_fault(self) -> bool {
        !self.is_healthy() && self != Self::Connecting
    }
}

/// The observations of the path to one peer.
pub(super) struct Evidence<'a> {
    pub(super) replica: &'a str,
    pub(super) cluster_id: &'a str,
    pub(super) nodes: &'a overlay::Nodes,
    pub(super) tunnel: Option<Finding>,
    pub(super) kind: Kind,
    pub(super) remote: Option<Nodes>,
    pub(super) is_checked: bool,
    /// Local nodes whose end-to-end checks fail.
    pub(super) failing: &'a [String],
}

/// Returns the verdict for the first broken segment in this order: tunnel, local overlay, remote
/// overlay, nodes.
pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let tunnel = evidence.tunnel.clone();
    let (reason, message) = tunnel
        .or_else(|| local_overlay(evidence))
        .or_else(|| remote_overlay(evidence))
        .or_else(|| between(evidence))
        .unwrap_or_else(|| healthy(evidence));

    Verdict { reason, message }
}

/// A reason with its message for users.
pub(super) type Finding = (Reason, String);

fn local_overlay(evidence: &Evidence<'_>) -> Option<Finding> {
    let of = |state| {
        let unhealthy = evidence.nodes.unhealthy();
        unhealthy
            .filter(move |(_, overlay)| *overlay == state)
            .map(|(name, _)| name)
    };
    let replica = evidence.replica;
    let all = evidence.nodes.len();
    let silent = of(Overlay::Silent).count();
    let deaf = of(Overlay::Deaf).count();
    let message = if silent > 0 {
        format!(
            "{}: their overlay probes do not reach gateway {replica} ({silent} of {all} nodes): \
             open the overlay's UDP port from node to gateway, and check that the route agent runs there",
            names(of(Overlay::Silent)),
        )
    } else if deaf > 0 {
        format!(
            "{}: the overlay replies of gateway {replica} do not reach them ({deaf} of {all} nodes): \
             open the overlay's UDP port from gateway to node",
            names(of(Overlay::Deaf)),
        )
    } else {
        return None;
    };

    Some((Reason::LocalOverlay, message))
}

fn remote_overlay(evidence: &Evidence<'_>) -> Option<Finding> {
    let nodes = evidence.remote.filter(|nodes| nodes.cut > 0)?;
    let peer = evidence.cluster_id;
    let message = format!(
        "{} of {} nodes of {peer} are cut off from its gateway: \
         see the Connection in {peer} for their names and the cause",
        nodes.cut, nodes.all,
    );

    Some((Reason::RemoteOverlay, message))
}

/// Returns the fault if end-to-end checks fail although both overlays and the tunnel are healthy.
fn between(evidence: &Evidence<'_>) -> Option<Finding> {
    let remote = evidence.remote?;
    // A remote node does not reply to checks while its route agent is stopped.
    if !evidence.is_checked
        || !remote.echo_responder
        || remote.resting > 0
        || evidence.failing.is_empty()
    {
        return None;
    }

    let peer = evidence.cluster_id;
    let (failing, all) = (evidence.failing.len(), evidence.nodes.checking_count());
    let nodes = names(evidence.failing.iter().map(String::as_str));
    Some(if failing < all {
        let message = format!(
            "{nodes}: packets to {peer} or the replies are lost, those of the other nodes are not \
             ({failing} of {all} nodes): check these nodes for a route, rule or firewall that drops them, \
             and the nodes of {peer} for one that drops packets from these nodes"
        );
        (Reason::Node, message)
    } else {
        let message = format!(
            "{nodes}: packets to the nodes of {peer} are lost ({failing} of {all} nodes) although both \
             overlays and the tunnel are healthy: check the firewalls on the nodes of both clusters; \
             they must accept UDP {ECHO_RESPONDER_PORT} from the overlay"
        );
        (Reason::NodeToNode, message)
    })
}

fn healthy(evidence: &Evidence<'_>) -> Finding {
    let peer = evidence.cluster_id;
    let responds = evidence.remote.is_some_and(|nodes| nodes.echo_responder);
    if evidence.is_checked && responds && evidence.nodes.checking_count() > 0 {
        let message = format!("the nodes reach the nodes of {peer}");
        return (Reason::EndToEnd, message);
    }
    let message = format!(
        "the nodes reach the gateway of {peer}; {}",
        match evidence.kind {
            Kind::Upstream => "upstream Liqo's gateways do not report the path behind them",
            Kind::Unknown | Kind::Ours => "the path behind it is unknown",
        }
    );

    (Reason::ToRemoteGateway, message)
}

/// Lists up to [`NAMES_MAX`] names, and the number of the remaining ones.
fn names<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let some: Vec<&str> = names.by_ref().take(NAMES_MAX).collect();
    let kind = if some.len() == 1 { "node" } else { "nodes" };
    match names.count() {
        0 => format!("{kind} {}", some.join(", ")),
        more => format!("{kind} {} and {more} more", some.join(", ")),
    }
}
