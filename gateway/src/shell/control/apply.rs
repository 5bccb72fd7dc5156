//! Applies changes of the desired state to engine and eBPF programs.

use super::{Control, is_endpoint};
use crate::engine::{PeerConfig, Place};
use crate::planned::Changes;
use crate::shell::lane::{Command, Hung};
use crate::shell::state::lock;
use control_fabric::Difference;
use std::collections::BTreeSet;

impl Control {
    /// Reads the desired state and applies its change. After a failure, restores the last state.
    pub(super) fn reload(&mut self) {
        let desired = match self.loader.load(Some(&self.served)) {
            Ok(Some(desired)) => desired,
            // An invalid change may have been reverted, so the configuration is valid again.
            Ok(None) if self.is_applied => return self.state.note_restored(),
            Ok(None) => self.served.clone(),
            Err(error) => return self.reject(&anyhow::Error::from(error)),
        };

        let planned = desired.planned.clone();
        let before = std::mem::replace(&mut self.served, desired);
        let changes = planned.changes_since(&before.planned);
        match self.apply(&changes) {
            Ok(counts) => {
                self.is_applied = true;
                self.follow(&changes);
                if self.served.unserved_peers != before.unserved_peers {
                    self.follow_peers();
                }
                tracing::info!(
                    peers = planned.peers.len(),
                    changes = ?counts,
                    "configuration applied"
                );
                self.report_unserved(&before.unserved);
                self.state.note_applied(&self.served);
            }
            Err(error) => {
                self.served = before.clone();
                self.served.planned.skip_indices(&planned);
                self.is_applied = false;
                let restored = self.send_all();
                tracing::debug!(?restored, "restored the last valid configuration");
                self.reject(&error);
            }
        }
    }

    /// Applies the changes to the engine, then to the eBPF maps.
    ///
    /// Until the maps change, the eBPF programs drop packets of a new peer, and the engine drops
    /// packets to a removed peer. The index of a removed peer is not reused at once, so it cannot
    /// refer to two different peers in engine and maps.
    fn apply(&self, changes: &Changes<'_>) -> anyhow::Result<ebpf::Changes> {
        if self.is_applied {
            self.send_changes(changes)?;
        } else {
            self.send_all()?;
        }
        let all = || self.served.planned.tables();

        Ok(lock(&self.datapath).update(&changes.tables(), all)?)
    }

    /// Updates the state that depends on changed peers and replicas.
    fn follow(&mut self, changes: &Changes<'_>) {
        if changes.are_ranks_changed {
            let ranks = self.served.planned.ranks().values();
            let peers: BTreeSet<_> = ranks.copied().collect();
            self.connections.retain(|peer, _| peers.contains(peer));
            self.aggregate.retain(|peer| peers.contains(&peer));
        }
        let are_peers_changed = !(changes.fabric.peers.is_empty() && changes.peers.is_empty());
        if are_peers_changed {
            let served = &self.served;
            self.lookups.retain(|name| is_endpoint(served, name));
        }
        if are_peers_changed || changes.fabric.is_of_replicas {
            self.follow_peers();
        }
        for peer in changes.peers.iter().filter_map(rekeyed) {
            self.paths.note_rekeyed(&peer.cluster_id);
        }
    }

    /// Logs each object that is not served, unless `logged` contains the same line.
    fn report_unserved(&self, logged: &[String]) {
        for line in &self.served.unserved {
            if !logged.contains(line) {
                tracing::warn!("{line}");
            }
        }
    }

    fn reject(&self, error: &anyhow::Error) {
        let error = format!("{error:#}");
        if self.state.note_rejected(&error) {
            tracing::error!(
                error,
                "configuration rejected: the last valid one stays in force"
            );
        }
    }

    /// Sends the whole desired state to the lanes.
    pub(super) fn send_all(&self) -> Result<(), Hung> {
        let peers = self.served.planned.all_peers();
        self.lanes.send(Command::Peers(peers))?;
        self.lanes.send(Command::Place(self.place()))?;

        self.lanes.send(Command::Replicas(self.live_replicas()))
    }

    fn send_changes(&self, changes: &Changes<'_>) -> Result<(), Hung> {
        if let Some(peers) = changes.peer_changes() {
            self.lanes.send(Command::Peers(peers))?;
        }
        if changes.fabric.is_of_replicas {
            self.lanes.send(Command::Replicas(self.live_replicas()))?;
        }
        if changes.fabric.is_of_replicas || !changes.fabric.nodes.is_empty() {
            self.lanes.send(Command::Place(self.place()))?;
        }

        Ok(())
    }

    /// Returns the node on which this replica runs, `None` until it is known.
    fn place(&self) -> Option<Place> {
        let fabric = &self.served.planned.fabric;
        let mut replicas = fabric.replicas.iter();
        let own = replicas.find(|replica| replica.name == self.replica)?;
        let node = fabric.node(&own.node)?;

        Some(Place::new(node.internal_ip.into(), &node.pod_cidrs))
    }

    /// Returns the names of all ready replicas and of this replica, which may not be ready.
    pub(super) fn live_replicas(&self) -> Vec<String> {
        let replicas = self.served.planned.fabric.replicas.iter();
        let ready = replicas.filter(|replica| replica.ready);
        let names: BTreeSet<_> = ready
            .map(|replica| replica.name.clone())
            .chain([self.replica.clone()])
            .collect();
        names.into_iter().collect()
    }
}

/// Returns the peer if its keys have changed.
fn rekeyed<'a>(change: &Difference<'a, PeerConfig>) -> Option<&'a PeerConfig> {
    let (old, new) = change.old.zip(change.new)?;
    let is_rekeyed =
        old.public_key != new.public_key || old.local_private_key != new.local_private_key;

    is_rekeyed.then_some(new)
}

#[cfg(test)]
mod tests;
