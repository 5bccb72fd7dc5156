//! Looks at what the nodes' probes say, and tells peers, API server and people what follows.

use super::Control;
use crate::engine::{ConnectionState, PeerConfig};
use crate::path::{self, Way};
use crate::shell::lane::Command;
use crate::shell::state::lock;
use control_api::fabric::{Peer, Role};
use std::collections::BTreeMap;
use std::time::Instant;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

/// Returns the clock of the looks; the first comes when the nodes have had time to ask.
pub(super) fn looks() -> Interval {
    let mut looks = interval_at(tokio::time::Instant::now() + path::INTERVAL, path::INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    looks
}

impl Control {
    /// Takes over which peers and replicas there are.
    pub(super) fn follow_peers(&mut self) {
        let now = Instant::now();
        let peers = self.served.fabric.peers.iter();
        let peers = peers.map(|peer| {
            let is_checked = peer.reflector().is_some();
            (peer.cluster_id.as_str(), way(peer), is_checked)
        });
        self.paths.set_peers(peers, now);
        for cluster_id in self.served.unserved_peers.keys() {
            self.paths
                .note_connection(cluster_id, ConnectionState::Error, now);
        }
        let fabric = &self.served.fabric;
        self.state.retain_paths(|id| fabric.peer(id).is_some());
        let ready = fabric.replicas.iter().filter(|replica| replica.ready);
        let ready = ready.map(|replica| replica.name.clone());
        if let Some(reporter) = &mut self.reporter {
            reporter.set_live(ready);
            let served = self.served.peers.iter();
            let served = served.map(|peer| peer.cluster_id.as_str());
            reporter.set_peers(served, self.served.unserved_peers.clone());
        }
    }

    /// Notes whose keys are not those of `before`.
    pub(super) fn note_rekeyed(&mut self, before: &[PeerConfig]) {
        let before: BTreeMap<_, _> = before
            .iter()
            .map(|peer| (peer.cluster_id.as_str(), peer))
            .collect();
        for peer in &self.served.peers {
            let before = before.get(peer.cluster_id.as_str());
            let is_rekeyed = before.is_some_and(|before| {
                before.public_key != peer.public_key
                    || before.local_private_key != peer.local_private_key
            });
            if is_rekeyed {
                self.paths.note_rekeyed(&peer.cluster_id);
            }
        }
    }

    /// Takes in what the nodes have said.
    pub(super) fn look(&mut self) {
        if let Some(kinds) = self.joint.kinds() {
            let _ = self.lanes.send_others(&kinds); // Again at the next look.
        }
        let sightings = match lock(&self.datapath).sightings() {
            Ok(sightings) => sightings,
            Err(error) => {
                // Nothing is known of the nodes then, hence nothing said.
                tracing::warn!(%error, "failed to read what the nodes' probes say");
                return;
            }
        };
        let now = Instant::now();
        self.paths.look(&self.served.fabric.nodes, &sightings, now);

        let mut nodes = self.paths.nodes();
        nodes.reflect &= self.served.fabric.reflector().is_some();
        if nodes != self.nodes && self.lanes.send(Command::Nodes(nodes)).is_ok() {
            self.nodes = nodes;
        }
        let ill = self.paths.ill_nodes();
        let ill = ill.map(|(name, overlay)| (name.to_owned(), overlay.name()));
        self.state.note_nodes(nodes, ill.collect());
        let news = self.paths.poll_news(now);
        for (cluster_id, verdict) in &news {
            let (reason, message) = (verdict.reason.name(), &verdict.message);
            if verdict.reason.is_fault() {
                tracing::warn!(peer = cluster_id, reason, message, "path");
            } else {
                tracing::info!(peer = cluster_id, reason, message, "path");
            }
            self.state.note_path(cluster_id, verdict);
        }
        if let Some(reporter) = &mut self.reporter {
            for (cluster_id, verdict) in news {
                reporter.note_path(cluster_id, verdict);
            }
        }
        self.report();
    }
}

/// Who opens the tunnel to a peer, and where.
fn way(peer: &Peer) -> Way {
    match &peer.role {
        Role::Server { port } => Way::Server { port: *port },
        Role::Client { addresses, port } => Way::Client {
            addresses: addresses.clone(),
            port: *port,
        },
    }
}
