//! Looks at what the nodes' probes say, and tells peers, API server and people what follows.

use super::Control;
use crate::path;
use crate::shell::lane::Command;
use crate::shell::state::lock;
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
        let peers = self.served.fabric.peers.iter();
        let peers = peers.map(|peer| (peer.cluster_id.as_str(), peer.reflector().is_some()));
        self.paths.set_peers(peers, Instant::now());
        let fabric = &self.served.fabric;
        self.state.retain_paths(|id| fabric.peer(id).is_some());
        let ready = fabric.replicas.iter().filter(|replica| replica.ready);
        let ready = ready.map(|replica| replica.name.clone());
        if let Some(reporter) = &mut self.reporter {
            reporter.set_live(ready);
        }
    }

    /// Takes in what the nodes have said.
    pub(super) fn look(&mut self) {
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
        if nodes != self.nodes && self.lane.send(Command::Nodes(nodes)).is_ok() {
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
