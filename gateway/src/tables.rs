//! Translates the desired state into the tables of the eBPF programs and the peers of the engine.
//! PURE: no IO, clock or randomness.
//!
//! The eBPF programs and the engine identify a peer by its index. A peer keeps its index, and a
//! freed index is reused last. A packet in flight between the eBPF programs and the engine is
//! therefore never assigned to another peer.

use crate::engine::{PeerConfig, PrivateKey, Role};
use control_fabric::{Fabric, MappedIp, Node, Peer, Target};
use ebpf::{Local, Outbound, Service, Tables, Transit};
use ebpf_common::probe::PEERS_MAX;
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Length of an IPv4 and a TCP header without options, in bytes.
const TCP_HEADERS: u16 = 40;

const _: () = assert!(
    control_fabric::PEERS_MAX == PEERS_MAX,
    "the heartbeat has a bit for each peer of a fabric"
);

/// The indices of the peers, by cluster id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indices {
    assigned: BTreeMap<String, u16>,
    next: u16,
}

impl Indices {
    /// Assigns an index to each peer of `fabric`, and frees the indices of all other peers.
    pub(crate) fn assign(&mut self, fabric: &Fabric) {
        self.assigned.retain(|id, _| fabric.peer(id).is_some());
        for peer in &fabric.peers {
            if !self.assigned.contains_key(&peer.cluster_id) {
                let index = self.free();
                self.assigned.insert(peer.cluster_id.clone(), index);
            }
        }
    }

    /// Returns the cluster ids and indices, sorted by cluster id.
    pub(crate) fn by_rank(&self) -> impl Iterator<Item = (&str, u16)> {
        self.assigned
            .iter()
            .map(|(id, index)| (id.as_str(), *index))
    }

    fn of(&self, cluster_id: &str) -> Option<u16> {
        self.assigned.get(cluster_id).copied()
    }

    /// Returns the free index that was assigned least recently.
    fn free(&mut self) -> u16 {
        while self.assigned.values().any(|index| *index == self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let index = self.next;
        self.next = self.next.wrapping_add(1);
        index
    }
}

/// Returns the tables of the eBPF programs.
pub(crate) fn tables(fabric: &Fabric, indices: &Indices) -> Tables {
    let anywhere = ready_nodes(fabric);
    let mut tables = Tables {
        nodes: fabric.nodes.iter().map(|node| node.internal_ip).collect(),
        sources: fabric
            .pod_cidrs
            .iter()
            .chain(std::iter::once(&fabric.external_cidr))
            .copied()
            .collect(),
        local: local(fabric, anywhere.as_ref()),
        ..Tables::default()
    };
    for peer in &fabric.peers {
        if let Some(index) = indices.of(&peer.cluster_id) {
            add_peer(&mut tables, peer, index);
        }
    }
    for ip in &fabric.ips {
        add_ip(&mut tables, fabric, indices, ip, anywhere.as_ref());
    }

    tables
}

/// Returns the peers of the engine. `keys` holds the local private keys by the peer's cluster id.
///
/// A peer without a key is omitted.
pub(crate) fn peers(
    fabric: &Fabric,
    indices: &Indices,
    keys: &BTreeMap<String, PrivateKey>,
) -> Vec<PeerConfig> {
    fabric
        .peers
        .iter()
        .filter_map(|peer| {
            Some(PeerConfig {
                index: indices.of(&peer.cluster_id)?,
                cluster_id: peer.cluster_id.clone(),
                local_private_key: keys.get(&peer.cluster_id)?.clone(),
                public_key: peer.public_key,
                role: match &peer.role {
                    control_fabric::Role::Server { .. } => Role::Server,
                    control_fabric::Role::Client { addresses, port } => Role::Client {
                        addresses: addresses.clone(),
                        port: *port,
                    },
                },
                mtu: peer.mtu,
                allowed: remaps(peer).map(Remap::from).collect(),
            })
        })
        .collect()
}

fn remaps(peer: &Peer) -> impl Iterator<Item = &Remap> {
    peer.pods.iter().chain(&peer.external)
}

fn add_peer(tables: &mut Tables, peer: &Peer, index: u16) {
    for remap in remaps(peer) {
        let outbound = Outbound {
            peer: index,
            to: remap.from(),
            mss: peer.mtu.saturating_sub(TCP_HEADERS),
        };
        tables.outbound.insert(remap.to(), outbound);
        tables.inbound.insert((index, remap.from()), remap.to());
    }
    if let Some(address) = peer.unknown_source() {
        tables.unknown_sources.insert(index, address);
    }
}

/// Returns the node for each local prefix. A pod address outside the prefixes of all nodes is
/// routed to any ready node.
fn local(fabric: &Fabric, anywhere: Option<&Arc<[Ipv4Addr]>>) -> BTreeMap<Ipv4Net, Local> {
    let mut local = BTreeMap::new();
    if let Some(anywhere) = anywhere {
        for cidr in &fabric.pod_cidrs {
            local.insert(*cidr, Local::Spread(anywhere.clone()));
        }
    }
    for node in &fabric.nodes {
        for cidr in &node.pod_cidrs {
            local.insert(*cidr, Local::Node(node.internal_ip));
        }
        local.insert(node.external_ip.into(), Local::Node(node.internal_ip));
    }
    if let Some((echo_responder, anywhere)) = fabric.echo_responder().zip(anywhere) {
        local.insert(echo_responder.into(), Local::Spread(anywhere.clone()));
    }

    local
}

fn add_ip(
    tables: &mut Tables,
    fabric: &Fabric,
    indices: &Indices,
    ip: &MappedIp,
    anywhere: Option<&Arc<[Ipv4Addr]>>,
) {
    let node = match &ip.target {
        Target::Remote {
            cluster_id,
            original,
        } => {
            if let Some(peer) = indices.of(cluster_id) {
                let transit = Transit {
                    peer,
                    to: *original,
                };
                tables.transit.insert(ip.status_ip, transit);
                tables
                    .transit_sources
                    .insert((peer, *original), ip.status_ip);
            }
            return;
        }
        Target::Service => {
            if let Some(nodes) = anywhere.cloned() {
                let to = ip.spec_ip;
                tables.services.insert(ip.status_ip, Service { to, nodes });
            }
            return;
        }
        Target::Node(name) | Target::Pod { node: Some(name) } => {
            let node = fabric.node(name);
            node.map(|node| Local::Node(node.internal_ip))
        }
        Target::Pod { node: None } | Target::Outside => None,
    };
    if let Some(local) = node.or_else(|| anywhere.cloned().map(Local::Spread)) {
        tables.local.insert(ip.status_ip.into(), local);
    }
}

/// Returns the outer addresses of all ready nodes, or of all nodes if none is ready. An unavailable
/// control plane makes every node unready while its pods keep running.
fn ready_nodes(fabric: &Fabric) -> Option<Arc<[Ipv4Addr]>> {
    let addresses = |is_candidate: fn(&Node) -> bool| -> Option<Arc<[_]>> {
        let nodes = fabric.nodes.iter().filter(|node| is_candidate(node));
        let addresses: Arc<[_]> = nodes.map(|node| node.internal_ip).collect();
        (!addresses.is_empty()).then_some(addresses)
    };

    addresses(|node| node.ready).or_else(|| addresses(|_| true))
}

#[cfg(test)]
mod tests;
