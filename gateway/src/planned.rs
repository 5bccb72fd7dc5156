//! The desired state of engine and eBPF programs, and its changes. PURE: no IO, clock or randomness.
//!
//! A change of one object takes time for this object and those that refer to it, and some 10 us for
//! comparisons of pointers. The first state is a change of the empty one, so there is one set of
//! rules.

use crate::engine::{PeerConfig, PrivateKey, Role};
use crate::tables::{self, Indexed, Indices, Ranks, remaps};
use control_fabric::{Difference, Fabric, FabricChange, Keyed, List, MappedIp, Peer, Target};
use ebpf::{TableChanges, Tables};
use ipam::Remap;
use ipnet::Ipv4Net;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The desired state of engine and eBPF programs. Copies share the elements.
#[derive(Clone)]
pub(crate) struct Planned {
    pub(crate) fabric: Fabric,
    /// The peers of the engine: those with a private key.
    pub(crate) peers: List<PeerConfig>,
    /// Cluster ids of the peers without a private key.
    pub(crate) keyless: BTreeSet<String>,
    indices: Indices,
}

/// The differences between two desired states.
pub(crate) struct Changes<'a> {
    pub(crate) fabric: FabricChange<'a>,
    /// The changed peers of the engine.
    pub(crate) peers: Vec<Difference<'a, PeerConfig>>,
    /// Whether a peer was added or removed, with or without a private key.
    pub(crate) are_ranks_changed: bool,
    are_tunnelled_changed: bool,
    old: &'a Planned,
    new: &'a Planned,
}

/// Changes of the peers of the engine.
#[derive(Clone)]
pub(crate) struct PeerChanges {
    /// The peers to add or replace.
    pub(crate) peers: Vec<PeerConfig>,
    /// Indices of the peers to remove; `None` removes all peers that are not in `peers`.
    pub(crate) removed: Option<Vec<u16>>,
    /// Cluster id and index of each peer; `None` if they have not changed.
    pub(crate) ranks: Option<Ranks>,
    /// All destinations whose packets the gateway sends through a tunnel; `None` if they have not
    /// changed.
    pub(crate) tunnelled: Option<Arc<[Ipv4Net]>>,
}

impl Planned {
    /// Plans the whole desired state. `key` returns the local private key for a peer.
    pub(crate) fn new(fabric: Fabric, key: impl Fn(&Peer) -> Option<PrivateKey>) -> Self {
        let empty = Self {
            fabric: fabric.without_elements(),
            peers: List::default(),
            keyless: BTreeSet::new(),
            indices: Indices::default(),
        };

        empty.update(fabric, false, key)
    }

    /// Plans the state for `fabric`. Calls `key` for changed peers, and for all peers if
    /// `are_keys_changed`: any private key may then have changed.
    #[must_use]
    pub(crate) fn update(
        &self,
        fabric: Fabric,
        are_keys_changed: bool,
        key: impl Fn(&Peer) -> Option<PrivateKey>,
    ) -> Self {
        let mut planned = self.clone();
        let changes = fabric.peers.differences(&self.fabric.peers);
        planned.indices.assign(&changes);
        for change in changes {
            if let Some(peer) = change.old {
                planned.set_peer(&peer.cluster_id, change.new, &key);
            } else if let Some(peer) = change.new {
                planned.set_peer(&peer.cluster_id, change.new, &key);
            }
        }
        if are_keys_changed {
            for peer in &fabric.peers {
                planned.set_peer(&peer.cluster_id, Some(peer), &key);
            }
        }
        planned.fabric = fabric;

        planned
    }

    /// Returns the differences from `old`.
    pub(crate) fn changes_since<'a>(&'a self, old: &'a Self) -> Changes<'a> {
        let fabric = self.fabric.changes_since(&old.fabric);
        let remapped = |peer: &Peer| -> Vec<_> { remaps(peer).map(Remap::to).collect() };
        let mut peers = fabric.peers.iter();
        let mut ips = fabric.ips.iter().flat_map(Difference::both);

        Changes {
            peers: self.peers.differences(&old.peers),
            are_ranks_changed: !Arc::ptr_eq(self.ranks(), old.ranks()),
            are_tunnelled_changed: peers.any(|it| it.old.map(remapped) != it.new.map(remapped))
                || ips.any(|ip| remote(ip).is_some()),
            fabric,
            old,
            new: self,
        }
    }

    /// Returns the tables of the eBPF programs.
    pub(crate) fn tables(&self) -> Tables {
        tables::tables(self.indexed())
    }

    /// Returns all peers of the engine, which replace those that it has.
    pub(crate) fn all_peers(&self) -> PeerChanges {
        PeerChanges {
            peers: self.peers.iter().cloned().collect(),
            removed: None,
            ranks: Some(self.ranks().clone()),
            tunnelled: Some(self.tunnelled().into()),
        }
    }

    /// Returns cluster id and index of each peer.
    pub(crate) fn ranks(&self) -> &Ranks {
        self.indices.ranks()
    }

    /// Returns all destinations whose packets the gateway sends through a tunnel.
    ///
    /// These are the remapped prefixes of the remote clusters, and the local addresses of IP
    /// objects that stand for an endpoint in a remote cluster.
    pub(crate) fn tunnelled(&self) -> Vec<Ipv4Net> {
        let prefixes = self.fabric.peers.iter().flat_map(remaps).map(Remap::to);
        let ips = self.fabric.ips.iter();
        let ips = ips.filter(|ip| remote(ip).is_some_and(|id| self.indices.of(id).is_some()));

        prefixes.chain(ips.map(|ip| ip.status_ip.into())).collect()
    }

    /// Reuses the indices that only `rejected` has assigned as late as freed ones, because engine
    /// and eBPF programs may have applied a part of it.
    pub(crate) fn skip_indices(&mut self, rejected: &Self) {
        self.indices.skip(&rejected.indices);
    }

    fn indexed(&self) -> Indexed<'_> {
        Indexed {
            fabric: &self.fabric,
            indices: &self.indices,
        }
    }

    fn set_peer(
        &mut self,
        cluster_id: &str,
        peer: Option<&Peer>,
        key: impl Fn(&Peer) -> Option<PrivateKey>,
    ) {
        let index = self.indices.of(cluster_id);
        let key = peer.and_then(key);
        let is_keyless = peer.is_some() && key.is_none();
        let config = peer.zip(index).zip(key);
        let config = config.map(|((peer, index), key)| Arc::new(config_of(peer, index, key)));
        self.peers.set((cluster_id, ""), config.as_ref());
        if is_keyless {
            self.keyless.insert(cluster_id.to_owned());
        } else {
            self.keyless.remove(cluster_id);
        }
    }
}

impl Changes<'_> {
    /// Returns whether the states are equal.
    pub(crate) fn is_empty(&self) -> bool {
        self.fabric.is_empty() && self.peers.is_empty()
    }

    /// Returns the changes of the peers of the engine; `None` if there is none.
    pub(crate) fn peer_changes(&self) -> Option<PeerChanges> {
        let peers = self.peers.iter();
        let are_others_changed = self.are_ranks_changed || self.are_tunnelled_changed;
        let is_changed = !self.peers.is_empty() || are_others_changed;

        is_changed.then(|| PeerChanges {
            peers: peers.clone().filter_map(|it| it.new.cloned()).collect(),
            removed: Some(peers.filter_map(removed_index).collect()),
            ranks: self.are_ranks_changed.then(|| self.new.ranks().clone()),
            tunnelled: self
                .are_tunnelled_changed
                .then(|| self.new.tunnelled().into()),
        })
    }

    /// Returns the changes of the tables of the eBPF programs.
    pub(crate) fn tables(&self) -> TableChanges {
        tables::changes(self.old.indexed(), self.new.indexed(), &self.fabric)
    }
}

impl Keyed for PeerConfig {
    fn key(&self) -> (&str, &str) {
        (&self.cluster_id, "")
    }
}

/// Returns the index that no longer belongs to the peer.
fn removed_index(change: &Difference<'_, PeerConfig>) -> Option<u16> {
    let old = change.old?.index;

    Some(old).filter(|old| change.new.is_none_or(|new| new.index != *old))
}

fn config_of(peer: &Peer, index: u16, local_private_key: PrivateKey) -> PeerConfig {
    PeerConfig {
        index,
        cluster_id: peer.cluster_id.clone(),
        local_private_key,
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
    }
}

/// Returns the cluster whose endpoint the IP object stands for.
fn remote(ip: &MappedIp) -> Option<&str> {
    match &ip.target {
        Target::Remote { cluster_id, .. } => Some(cluster_id),
        Target::Node(_) | Target::Pod { .. } | Target::Service | Target::Outside => None,
    }
}

#[cfg(test)]
mod tests;
