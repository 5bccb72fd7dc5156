//! Computes the desired kernel state of a node.

use crate::filter::Filter;
use crate::liveness::Target;
use crate::mutant;
use crate::settings::{PROBES, Settings};
use crate::state::{Device, Hop, Route, State};
use crate::underlay::Underlay;
use crate::view::View;
use classes::Classes;
use control_fabric::{Fabric, List, MappedIp, Node, Peer, REPLICAS_MAX, Replica};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

pub(crate) mod change;

mod classes;
mod groups;
mod slots;

/// Overhead of VXLAN in bytes: IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14.
const OVERLAY_OVERHEAD_BYTES: u32 = 50;

/// Lower bound of a route's MTU in bytes. Every IPv4 host accepts packets of this size (RFC 791).
const MTU_MIN_BYTES: u32 = 576;

/// Lower bound of the overlay device's MTU in bytes. It applies if all routes have smaller MTUs.
const DEVICE_MTU_BYTES: u32 = 1500;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    pub(crate) fabric: &'a Fabric,
    /// Name of the node whose state is planned.
    pub(crate) node: &'a str,
    pub(crate) view: &'a View,
    pub(crate) settings: &'a Settings,
    pub(crate) underlay: &'a Underlay,
    /// The current kernel state. The plan keeps the nexthop ids and probe addresses of this state.
    pub(crate) observed: &'a State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The desired kernel state.
    pub(crate) state: State,
    /// The gateway replicas to which probes are sent, by name.
    pub(crate) probes: BTreeMap<String, Target>,
    /// The node's address in the external CIDR.
    pub(crate) external_ip: Ipv4Addr,
    /// The Node's InternalIP, which is the node's outer address in overlay frames.
    pub(crate) internal_ip: Ipv4Addr,
}

/// The desired state does not allow a plan for this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The desired state has no complete Node object with this name.
    #[error(
        "Node {node} is missing or incomplete; complete Nodes: {known}; choose one with --node, or add the Node"
    )]
    UnknownNode {
        node: String,
        /// Names of the complete nodes, separated by commas.
        known: String,
    },

    /// The number of gateway replicas exceeds the number of probe addresses.
    #[error("{count} gateway replicas exceed the limit of {REPLICAS_MAX}")]
    TooManyReplicas { count: usize },
}

impl Error {
    /// Creates an [`Error::UnknownNode`] that lists the nodes of `fabric`.
    pub(crate) fn unknown_node(fabric: &Fabric, node: &str) -> Self {
        let names: Vec<_> = fabric.nodes.iter().map(|node| node.name.as_str()).collect();

        Self::UnknownNode {
            node: node.to_owned(),
            known: if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            },
        }
    }
}

/// Returns the node `name` if the desired state allows a plan for it.
///
/// Takes far less time than [`plan`], which returns the same errors.
///
/// # Errors
///
/// Returns [`Error`] if the node is unknown, or if there are too many gateway replicas.
pub(crate) fn node<'a>(fabric: &'a Fabric, name: &str) -> Result<&'a Node, Error> {
    let node = fabric
        .node(name)
        .ok_or_else(|| Error::unknown_node(fabric, name))?;
    slots::addresses(&fabric.replicas)?;

    Ok(node)
}

/// Computes the desired kernel state of one node.
///
/// # Errors
///
/// Returns [`Error`] if the node is unknown, or if there are too many gateway replicas.
pub(crate) fn plan(input: &Input) -> Result<Plan, Error> {
    let Input {
        fabric,
        settings,
        observed,
        ..
    } = *input;
    let node = node(fabric, input.node)?;
    let slots = slots::assign(&fabric.replicas, observed, settings)?;
    let external = Ipv4Net::from(node.external_ip);
    let remote = remote_cidrs(fabric);

    let mut state = State {
        rule: true,
        addresses: BTreeSet::from([external]),
        unreachable: remote.iter().copied().chain([settings.probe_net]).collect(),
        filter: Some(filter(input, node, &remote).ruleset()),
        ..State::default()
    };
    let mut probes = BTreeMap::new();
    for replica in &fabric.replicas {
        let slot = slots[&replica.address];
        let (id, probe) = (settings.hop_id(slot, PROBES), settings.probe_address(slot));
        let route = Route {
            nexthop: id,
            src: node.external_ip,
            mtu_bytes: None,
        };
        state.hops.insert(id, hop(input, node, replica));
        state.routes.insert(probe.into(), route);
        let target = Target {
            probe,
            replica: replica.address,
        };
        probes.insert(replica.name.clone(), target);
    }
    add_peers(input, node, &slots, &mut state);
    if mutant::disables("unreachable-route") {
        state.unreachable.clear();
    }
    state.device = Some(device(settings, &state));

    Ok(Plan {
        state,
        probes,
        external_ip: node.external_ip,
        internal_ip: node.internal_ip,
    })
}

/// Returns the view that corresponds to the kernel state `observed` of a previous process. A
/// restarted agent starts with this view.
///
/// In this view, a cluster is reached by the replicas whose nexthops are in the cluster's group.
pub(crate) fn adopt(fabric: &Fabric, settings: &Settings, observed: &State) -> View {
    let mut view = View::default();
    for peer in &fabric.peers {
        let group = Fabric::remote_cidrs(peer)
            .find_map(|cidr| observed.routes.get(&cidr))
            .and_then(|route| observed.groups.get(&route.nexthop));
        for id in group.into_iter().flatten() {
            let Some(hop) = observed.hops.get(id).filter(|_| settings.is_nexthop(*id)) else {
                continue;
            };
            let replica = fabric.replicas.iter().find(|it| it.address == hop.dst);
            if let Some(replica) = replica {
                view.reaches(&replica.name, &peer.cluster_id);
            }
        }
    }

    view
}

fn remote_cidrs(fabric: &Fabric) -> BTreeSet<Ipv4Net> {
    fabric.peers.iter().flat_map(Fabric::remote_cidrs).collect()
}

/// Adds to `state` the nexthops for peers' traffic, with one nexthop per replica and MTU class.
/// Adds the groups and routes of the peers that a replica reaches.
fn add_peers(input: &Input, node: &Node, slots: &BTreeMap<Ipv4Addr, u8>, state: &mut State) {
    let peers = &input.fabric.peers;
    let mtus = mtus(peers, input.underlay.mtu_bytes);
    let classes = Classes::assign(&mtus, input.observed, input.settings);
    for class in classes.all() {
        for replica in &input.fabric.replicas {
            let id = input.settings.hop_id(slots[&replica.address], class);
            state.hops.insert(id, hop(input, node, replica));
        }
    }

    let grants = peers.iter().map(|peer| {
        let mtu = mtu_bytes(peer, input.underlay.mtu_bytes);
        classes.of(mtu)
    });
    let grants: Vec<_> = grants.collect();
    let clusters: Vec<_> = peers
        .iter()
        .zip(&grants)
        .map(|(peer, grant)| groups::Cluster {
            cidrs: Fabric::remote_cidrs(peer).collect(),
            members: grant.map_or_else(BTreeSet::new, |(class, _)| {
                members(input, peer, slots, class)
            }),
        })
        .collect();
    let assigned = groups::assign(&clusters, input.observed, input.settings);

    for ((cluster, grant), group) in clusters.into_iter().zip(grants).zip(assigned) {
        let Some(((_, mtu), group)) = grant.zip(group) else {
            continue;
        };
        let route = Route {
            nexthop: group,
            src: node.external_ip,
            mtu_bytes: Some(mtu),
        };
        state.groups.insert(group, cluster.members);
        state
            .routes
            .extend(cluster.cidrs.into_iter().map(|cidr| (cidr, route)));
    }
}

fn hop(input: &Input, node: &Node, replica: &Replica) -> Hop {
    Hop {
        src: node.internal_ip,
        dst: replica.address,
        vni: input.settings.overlay_vni,
    }
}

/// Returns the ids of the nexthops of the class `class` to the replicas that reach `peer`.
///
/// If replicas on this node reach the peer, packets go to these replicas only, because other replicas cost an overlay frame
/// over the network for each packet.
fn members(input: &Input, peer: &Peer, slots: &BTreeMap<Ipv4Addr, u8>, class: u8) -> BTreeSet<u32> {
    let names = input.view.replicas_of(&peer.cluster_id);
    let reaching = || {
        let replicas = input.fabric.replicas.iter();
        replicas.filter(|replica| names.contains(replica.name.as_str()))
    };
    let is_here = |replica: &&Replica| replica.node == input.node;
    let has_local = reaching().any(|replica| is_here(&replica));

    reaching()
        .filter(|replica| !has_local || is_here(replica))
        .map(|replica| input.settings.hop_id(slots[&replica.address], class))
        .collect()
}

fn mtus(peers: &List<Peer>, underlay_mtu_bytes: Option<u32>) -> BTreeSet<u32> {
    let peers = peers.iter();

    peers
        .map(|peer| mtu_bytes(peer, underlay_mtu_bytes))
        .collect()
}

fn mtu_bytes(peer: &Peer, underlay_mtu_bytes: Option<u32>) -> u32 {
    let tunnel = u32::from(peer.mtu);
    let overlay = underlay_mtu_bytes.map(|mtu| mtu.saturating_sub(OVERLAY_OVERHEAD_BYTES));

    overlay.map_or(tunnel, |overlay| tunnel.min(overlay.max(MTU_MIN_BYTES)))
}

fn device(settings: &Settings, state: &State) -> Device {
    let routes = state.routes.values();
    let largest = routes.filter_map(|route| route.mtu_bytes).max();

    Device {
        port: settings.overlay_port,
        mac: settings.mac(),
        mtu_bytes: largest.unwrap_or_default().max(DEVICE_MTU_BYTES),
        ready: true,
    }
}

fn filter(input: &Input, node: &Node, remote: &BTreeSet<Ipv4Net>) -> Filter {
    let Input {
        fabric,
        settings,
        underlay,
        ..
    } = *input;
    let echo = fabric.echo_responder().map(|it| (it, node.external_ip));

    Filter {
        device: settings.device().to_owned(),
        overlay_port: settings.overlay_port,
        priority_lead: settings.nft_lead,
        underlay: underlay.interfaces.clone(),
        trusted: settings.trusted_interfaces.clone(),
        gateways: fabric.replicas.iter().map(|it| it.address).collect(),
        local: disjoint(fabric.pod_cidrs.iter().copied()),
        remote: disjoint(remote.iter().copied().chain([settings.probe_net])),
        external_ip: node.external_ip,
        masqueraded: (fabric.ips.iter())
            .filter_map(|ip| masqueraded(ip, node))
            .collect(),
        mapped: (fabric.ips.iter())
            .filter_map(|ip| translated(ip, node))
            .chain(echo)
            .collect(),
    }
}

/// Returns the mapped and the original address if this node translates the former to the latter.
fn translated(ip: &MappedIp, node: &Node) -> Option<(Ipv4Addr, Ipv4Addr)> {
    is_translated_here(ip, node).then_some((ip.status_ip, ip.spec_ip))
}

/// Returns the destination of packets that this node masquerades because of `ip`.
fn masqueraded(ip: &MappedIp, node: &Node) -> Option<Ipv4Addr> {
    if ip.target == control_fabric::Target::Service {
        return Some(ip.spec_ip);
    }

    (is_translated_here(ip, node) && is_masqueraded(ip, node)).then_some(ip.status_ip)
}

/// Returns whether this node translates the mapped address of `ip` to the original address.
///
/// Gateways may send packets for pods and for hosts outside the cluster to any node. Every node
/// therefore translates the addresses of these targets. Gateways send packets for a node to that
/// node. A node's address in the external CIDR needs no translation, because the overlay device has
/// this address. Gateways translate the addresses of remote pods and of Services themselves.
fn is_translated_here(ip: &MappedIp, node: &Node) -> bool {
    match &ip.target {
        control_fabric::Target::Node(name) => {
            *name == node.name && ip.status_ip != node.external_ip
        }
        control_fabric::Target::Pod { .. } | control_fabric::Target::Outside => true,
        control_fabric::Target::Remote { .. } | control_fabric::Target::Service => false,
    }
}

/// Returns whether packets to this mapped address get the node's address as source.
///
/// An IP object may request masquerading. Masquerading is also necessary if the target is on
/// another host. Replies must then return through this node, which translates their addresses back.
fn is_masqueraded(ip: &MappedIp, node: &Node) -> bool {
    let is_here = match &ip.target {
        control_fabric::Target::Node(name) => *name == node.name,
        control_fabric::Target::Pod { node: Some(name) } => *name == node.name,
        control_fabric::Target::Pod { node: None }
        | control_fabric::Target::Outside
        | control_fabric::Target::Remote { .. }
        | control_fabric::Target::Service => false,
    };

    ip.masquerade || !is_here
}

/// Aggregates prefixes, so that no prefix contains another prefix.
fn disjoint(nets: impl Iterator<Item = Ipv4Net>) -> BTreeSet<Ipv4Net> {
    Ipv4Net::aggregate(&nets.collect()).into_iter().collect()
}

#[cfg(test)]
mod tests;
