//! The indices of the peers.

use control_fabric::{Difference, Peer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Cluster id and index of each peer, sorted by id. The position in this map is the position of the
/// peer's bit in the heartbeat.
pub(crate) type Ranks = Arc<BTreeMap<String, u16>>;

/// The indices of the peers, by cluster id. Copies share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indices {
    assigned: Ranks,
    next: u16,
}

impl Indices {
    /// Frees the indices of removed peers, and assigns an index to each new one.
    pub(crate) fn assign(&mut self, changes: &[Difference<'_, Peer>]) {
        for change in changes {
            match (change.old, change.new) {
                (Some(peer), None) => {
                    Arc::make_mut(&mut self.assigned).remove(&peer.cluster_id);
                }
                (None, Some(peer)) => {
                    let index = self.free();
                    let assigned = Arc::make_mut(&mut self.assigned);
                    assigned.insert(peer.cluster_id.clone(), index);
                }
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
    }

    /// Returns the index of a peer.
    pub(crate) fn of(&self, cluster_id: &str) -> Option<u16> {
        self.assigned.get(cluster_id).copied()
    }

    /// Returns the cluster ids and indices.
    pub(crate) fn ranks(&self) -> &Ranks {
        &self.assigned
    }

    /// Reuses the indices that only `rejected` has assigned as late as freed ones.
    pub(crate) fn skip(&mut self, rejected: &Self) {
        self.next = rejected.next;
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

#[cfg(test)]
impl Indices {
    pub(super) fn starting_at(next: u16) -> Self {
        Self {
            next,
            ..Self::default()
        }
    }
}
