//! Translates the desired state into the tables of the eBPF programs. PURE: no IO, clock or
//! randomness.
//!
//! Each entry belongs to one element of the fabric: to the cluster itself, a node, a peer or an IP
//! object. A change of the fabric changes the entries of the changed elements, and of the IP objects
//! that refer to a changed node or peer.
//!
//! The eBPF programs and the engine identify a peer by its index. A peer keeps its index, and a
//! freed index is reused last. A packet in flight between the eBPF programs and the engine is
//! therefore never assigned to another peer.

use control_fabric::{Difference, Fabric, FabricChange, Keyed, MappedIp, Node, Peer, Target};
use ebpf::{Local, Outbound, TableChanges, Tables, Transit};
use ebpf_common::probe::PEERS_MAX;
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeSet;

pub(crate) mod indices;

pub(crate) use indices::{Indices, Ranks};

/// Length of an IPv4 and a TCP header without options, in bytes.
const TCP_HEADERS: u16 = 40;

const _: () = assert!(
    control_fabric::PEERS_MAX == PEERS_MAX,
    "the heartbeat has a bit for each peer of a fabric"
);

/// A fabric, and the indices of its peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indexed<'a> {
    pub(crate) fabric: &'a Fabric,
    pub(crate) indices: &'a Indices,
}

/// Returns the tables of the eBPF programs.
pub(crate) fn tables(of: Indexed<'_>) -> Tables {
    Elements::all(of.fabric).tables(of)
}

/// Returns the changes of the tables from `old` to `new`, whose fabrics differ by `change`.
pub(crate) fn changes(
    old: Indexed<'_>,
    new: Indexed<'_>,
    change: &FabricChange<'_>,
) -> TableChanges {
    let has_nodes = |of: Indexed<'_>| !of.fabric.nodes.is_empty();
    if change.is_of_cluster || has_nodes(old) != has_nodes(new) {
        return TableChanges {
            removed: tables(old),
            added: tables(new),
        };
    }
    let moved = Moved::new(old, new, change);
    let is_spread_replaced = has_ready_node(old.fabric) != has_ready_node(new.fabric);
    let elements = |of: Indexed<'_>, side| {
        let elements = Elements::changed(of.fabric, change, &moved, is_spread_replaced, side);
        elements.tables(of)
    };

    TableChanges {
        removed: elements(old, Side::Old),
        added: elements(new, Side::New),
    }
}

/// Returns all prefixes of a peer, from the original to the remapped one.
pub(crate) fn remaps(peer: &Peer) -> impl Iterator<Item = &Remap> {
    peer.pods.iter().chain(&peer.external)
}

/// One of the two fabrics of a change.
#[derive(Clone, Copy)]
enum Side {
    Old,
    New,
}

impl Side {
    fn of<'a, T>(self, differences: &[Difference<'a, T>]) -> Vec<&'a T> {
        let elements = differences.iter();
        let elements = elements.filter_map(|it| match self {
            Self::Old => it.old,
            Self::New => it.new,
        });

        elements.collect()
    }
}

/// The nodes and peers whose change affects the entries of IP objects that refer to them.
struct Moved<'a> {
    nodes: BTreeSet<&'a str>,
    peers: BTreeSet<&'a str>,
}

impl<'a> Moved<'a> {
    fn new(old: Indexed<'_>, new: Indexed<'_>, change: &FabricChange<'a>) -> Self {
        let addresses = |node: &Node| (node.internal_ip, node.external_ip);
        let nodes = change.nodes.iter();
        let nodes = nodes.filter(|it| it.old.map(addresses) != it.new.map(addresses));
        let of_peer = |of: Indexed<'_>, peer: &Peer| (of.indices.of(&peer.cluster_id), peer.mtu);
        let peers = change.peers.iter().filter(|it| {
            it.old.map(|peer| of_peer(old, peer)) != it.new.map(|peer| of_peer(new, peer))
        });

        Self {
            nodes: nodes
                .flat_map(Difference::both)
                .map(|it| it.key().0)
                .collect(),
            peers: peers
                .flat_map(Difference::both)
                .map(|it| it.key().0)
                .collect(),
        }
    }

    /// Returns the IP objects of `fabric` that refer to one of the nodes or peers.
    fn ips<'f>(&self, fabric: &'f Fabric) -> impl Iterator<Item = &'f MappedIp> {
        let is_empty = self.nodes.is_empty() && self.peers.is_empty();
        let ips = (!is_empty).then(|| fabric.ips.iter());

        ips.into_iter().flatten().filter(|ip| match &ip.target {
            Target::Node(name) | Target::Pod { node: Some(name) } => {
                self.nodes.contains(name.as_str())
            }
            Target::Remote { cluster_id, .. } => self.peers.contains(cluster_id.as_str()),
            Target::Pod { node: None } | Target::Service | Target::Outside => false,
        })
    }
}

/// Elements of a fabric, whose entries make up a table.
struct Elements<'a> {
    sources: Vec<Ipv4Net>,
    /// Pod CIDRs of the cluster.
    pod_cidrs: Vec<Ipv4Net>,
    has_echo_responder: bool,
    nodes: Vec<&'a Node>,
    /// Nodes that [`Tables::spread`] contains, unless they are not ready.
    spread: Vec<&'a Node>,
    peers: Vec<&'a Peer>,
    ips: Vec<&'a MappedIp>,
}

impl<'a> Elements<'a> {
    fn all(fabric: &'a Fabric) -> Self {
        let cidrs = fabric.pod_cidrs.iter();

        Self {
            sources: cidrs.chain([&fabric.external_cidr]).copied().collect(),
            pod_cidrs: fabric.pod_cidrs.clone(),
            has_echo_responder: true,
            nodes: fabric.nodes.iter().collect(),
            spread: fabric.nodes.iter().collect(),
            peers: fabric.peers.iter().collect(),
            ips: fabric.ips.iter().collect(),
        }
    }

    fn changed(
        fabric: &'a Fabric,
        change: &FabricChange<'a>,
        moved: &Moved<'_>,
        is_spread_replaced: bool,
        side: Side,
    ) -> Self {
        // The pod CIDR of a node may be that of the cluster, and wins over it.
        let of_nodes = change.nodes.iter().flat_map(Difference::both);
        let of_nodes = of_nodes.flat_map(|node| &node.pod_cidrs);
        let pod_cidrs = of_nodes.filter(|cidr| fabric.pod_cidrs.contains(cidr));
        let nodes = side.of(&change.nodes);

        Self {
            sources: Vec::new(),
            pod_cidrs: pod_cidrs.copied().collect(),
            has_echo_responder: change.is_of_echo_responder,
            spread: if is_spread_replaced {
                fabric.nodes.iter().collect()
            } else {
                nodes.clone()
            },
            nodes,
            peers: side.of(&change.peers),
            ips: (side.of(&change.ips).into_iter())
                .chain(moved.ips(fabric))
                .collect(),
        }
    }

    fn tables(&self, of: Indexed<'_>) -> Tables {
        let Indexed { fabric, indices } = of;
        let mut tables = Tables {
            nodes: self.nodes.iter().map(|node| node.internal_ip).collect(),
            sources: self.sources.iter().copied().collect(),
            ..Tables::default()
        };
        self.add_spread(fabric, &mut tables);
        for node in &self.nodes {
            for cidr in &node.pod_cidrs {
                let local = Local::Node(node.internal_ip);
                tables.local.insert(*cidr, local);
            }
            let local = Local::Node(node.internal_ip);
            tables.local.insert(node.external_ip.into(), local);
        }
        for peer in &self.peers {
            if let Some(index) = indices.of(&peer.cluster_id) {
                add_peer(&mut tables, peer, index);
            }
        }
        for ip in &self.ips {
            add_ip(&mut tables, of, ip);
        }

        tables
    }

    /// Adds the ready nodes, or all nodes if none is ready, and the destinations that select one of
    /// them. An unavailable control plane makes every node unready while its pods keep running.
    ///
    /// A pod address outside the prefixes of all nodes is routed to any of these nodes.
    fn add_spread(&self, fabric: &Fabric, tables: &mut Tables) {
        if fabric.nodes.is_empty() {
            return;
        }
        let are_all_unready = !has_ready_node(fabric);
        let nodes = self.spread.iter();
        let nodes = nodes.filter(|node| node.ready || are_all_unready);
        tables.spread = nodes.map(|node| node.internal_ip).collect();
        let echo_responder = self.has_echo_responder.then(|| fabric.echo_responder());
        let echo_responder = echo_responder.flatten().map(Ipv4Net::from);
        let destinations = self.pod_cidrs.iter().copied().chain(echo_responder);
        tables.local = destinations.map(|net| (net, Local::Spread)).collect();
    }
}

fn has_ready_node(fabric: &Fabric) -> bool {
    fabric.nodes.iter().any(|node| node.ready)
}

fn add_peer(tables: &mut Tables, peer: &Peer, index: u16) {
    add_mss(tables, peer, index);
    for remap in remaps(peer) {
        let outbound = Outbound {
            peer: index,
            to: remap.from(),
        };
        tables.outbound.insert(remap.to(), outbound);
        tables.inbound.insert((index, remap.from()), remap.to());
    }
    if let Some(address) = peer.unknown_source() {
        tables.unknown_sources.insert(index, address);
    }
}

fn add_mss(tables: &mut Tables, peer: &Peer, index: u16) {
    let mss = peer.mtu.saturating_sub(TCP_HEADERS);
    tables.mss.insert(index, mss);
}

fn add_ip(tables: &mut Tables, of: Indexed<'_>, ip: &MappedIp) {
    let Indexed { fabric, indices } = of;
    let node = match &ip.target {
        Target::Remote {
            cluster_id,
            original,
        } => {
            let index = indices.of(cluster_id);
            if let Some((peer, index)) = fabric.peer(cluster_id).zip(index) {
                add_mss(tables, peer, index);
                let to = *original;
                let transit = Transit { peer: index, to };
                tables.transit.insert(ip.status_ip, transit);
                let source = (index, to);
                tables.transit_sources.insert(source, ip.status_ip);
            }
            return;
        }
        Target::Service => {
            if !fabric.nodes.is_empty() {
                tables.services.insert(ip.status_ip, ip.spec_ip);
            }
            return;
        }
        Target::Node(name) | Target::Pod { node: Some(name) } => fabric.node(name),
        Target::Pod { node: None } | Target::Outside => None,
    };
    let local = match node {
        // The entry belongs to the node.
        Some(node) if node.external_ip == ip.status_ip => return,
        Some(node) => Local::Node(node.internal_ip),
        None if fabric.nodes.is_empty() => return,
        None => Local::Spread,
    };
    tables.local.insert(ip.status_ip.into(), local);
}

#[cfg(test)]
mod tests;
