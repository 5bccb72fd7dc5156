//! What is wrong, in words: the first broken part, its cause and the cure.

use super::overlay::{self, Overlay};
use crate::engine::{Kind, Nodes};
use control_api::connection::reason;
use ebpf_common::settings::REFLECTOR_PORT;

/// Most nodes that a message names.
const NAMES_MAX: usize = 3;

/// What is found of the way to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The part that is broken, or how far the way is known to be whole.
    pub(crate) reason: Reason,
    /// The same in a sentence, with the cure.
    pub(crate) message: String,
}

/// The parts of the way, and how far it is known to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The tunnel is not up yet.
    Connecting,
    /// From node to node.
    EndToEnd,
    /// From our nodes to the peer's gateways, which tell nothing of what lies behind.
    ToRemoteGateway,
    /// Broken between the gateways.
    Tunnel,
    /// Broken between the gateways: nothing comes from the peer.
    NothingArrives,
    /// Broken between the gateways: nothing of ours gets to the peer.
    AnswersLost,
    /// Broken between the gateways, in a direction that only the peer knows.
    NoAnswer,
    /// The gateways' keys do not match.
    KeysDiffer,
    /// There is no address of the peer's gateways.
    NameNotResolved,
    /// No gateway of ours serves the peer.
    NotServed,
    /// Broken between our nodes and this gateway.
    LocalOverlay,
    /// Broken between the peer's gateways and its nodes.
    RemoteOverlay,
    /// Broken on some of our nodes, before the overlay.
    Node,
    /// Broken somewhere that none of the probes in between sees.
    NodeToNode,
}

impl Reason {
    /// Returns the reason of the condition.
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

    /// Whether no part is known to be broken.
    pub(crate) fn is_well(self) -> bool {
        matches!(self, Self::EndToEnd | Self::ToRemoteGateway)
    }

    /// Whether it is about this replica's tunnel: another one may have its own.
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

    /// Whether it follows from something that came, so that one replica may know it and others not.
    pub(crate) fn is_seen(self) -> bool {
        matches!(self, Self::AnswersLost | Self::KeysDiffer)
    }

    /// Whether a part is known to be broken.
    pub(crate) fn is_fault(self) -> bool {
        !self.is_well() && self != Self::Connecting
    }
}

/// What is known of the way to one peer.
pub(super) struct Evidence<'a> {
    pub(super) replica: &'a str,
    pub(super) cluster_id: &'a str,
    pub(super) nodes: &'a overlay::Nodes,
    pub(super) tunnel: Option<Finding>,
    pub(super) kind: Kind,
    pub(super) remote: Option<Nodes>,
    pub(super) is_checked: bool,
    /// Our nodes whose checks fail.
    pub(super) lost: &'a [String],
}

/// Names the first part that is broken.
pub(super) fn judge(evidence: &Evidence<'_>) -> Verdict {
    let tunnel = evidence.tunnel.clone();
    let (reason, message) = tunnel
        .or_else(|| local_overlay(evidence))
        .or_else(|| remote_overlay(evidence))
        .or_else(|| between(evidence))
        .unwrap_or_else(|| whole(evidence));

    Verdict { reason, message }
}

/// A part, and what to say of it.
pub(super) type Finding = (Reason, String);

fn local_overlay(evidence: &Evidence<'_>) -> Option<Finding> {
    let of = |wanted| {
        let ill = evidence.nodes.ill();
        ill.filter(move |(_, overlay)| *overlay == wanted)
            .map(|(name, _)| name)
    };
    let replica = evidence.replica;
    let all = evidence.nodes.len();
    let silent = of(Overlay::Silent).count();
    let deaf = of(Overlay::Deaf).count();
    let message = if silent > 0 {
        format!(
            "{}: no overlay packet of theirs reaches gateway {replica} ({silent} of {all} nodes): \
             is the overlay's UDP port open from node to gateway, and does the route agent run there?",
            names(of(Overlay::Silent)),
        )
    } else if deaf > 0 {
        format!(
            "{}: no overlay packet of gateway {replica} arrives there ({deaf} of {all} nodes): \
             is the overlay's UDP port open from gateway to node?",
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
         the Connection in {peer} says which, and why",
        nodes.cut, nodes.all,
    );

    Some((Reason::RemoteOverlay, message))
}

/// Both overlays and the tunnel are whole, and yet the nodes' checks are not answered.
fn between(evidence: &Evidence<'_>) -> Option<Finding> {
    let remote = evidence.remote?;
    // A node of the peer whose agent is away answers nobody.
    if !evidence.is_checked || !remote.reflect || remote.resting > 0 || evidence.lost.is_empty() {
        return None;
    }

    let peer = evidence.cluster_id;
    let (lost, all) = (evidence.lost.len(), evidence.nodes.checking_count());
    let who = names(evidence.lost.iter().map(String::as_str));
    Some(if lost < all {
        let message = format!(
            "{who}: packets to {peer} or their answers are lost, those of the other nodes are not \
             ({lost} of {all} nodes): look there for a route, rule or firewall in the way, and on the \
             nodes of {peer} for one against them"
        );
        (Reason::Node, message)
    } else {
        let message = format!(
            "{who}: packets to the nodes of {peer} are lost ({lost} of {all} nodes) though both overlays \
             and the tunnel are whole: look for a firewall in the way on the nodes of either cluster; \
             they must admit UDP {REFLECTOR_PORT} from the overlay"
        );
        (Reason::NodeToNode, message)
    })
}

fn whole(evidence: &Evidence<'_>) -> Finding {
    let peer = evidence.cluster_id;
    let reflects = evidence.remote.is_some_and(|nodes| nodes.reflect);
    if evidence.is_checked && reflects && evidence.nodes.checking_count() > 0 {
        let message = format!("the nodes reach the nodes of {peer}");
        return (Reason::EndToEnd, message);
    }
    let message = format!(
        "the nodes reach the gateway of {peer}; of the way behind it {}",
        match evidence.kind {
            Kind::Upstream => "gateways of its kind tell nothing",
            Kind::Unknown | Kind::Ours => "nothing is known",
        }
    );

    (Reason::ToRemoteGateway, message)
}

/// Some of the names, and how many more there are.
fn names<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let some: Vec<&str> = names.by_ref().take(NAMES_MAX).collect();
    let kind = if some.len() == 1 { "node" } else { "nodes" };
    match names.count() {
        0 => format!("{kind} {}", some.join(", ")),
        more => format!("{kind} {} and {more} more", some.join(", ")),
    }
}
