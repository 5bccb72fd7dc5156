//! Evaluates the nodes' probes, and reports the health of each path to peers, API server and log.

use super::Control;
use crate::engine::ConnectionState;
use crate::path::{self, TunnelRole};
use crate::shell::lane::Command;
use crate::shell::state::lock;
use control_fabric::{Peer, Role};
use std::time::Instant;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

/// Returns the timer of the path checks.
///
/// The first check is due after one interval. By then, the nodes have sent their first probes.
pub(super) fn check_interval() -> Interval {
    let mut checks = interval_at(tokio::time::Instant::now() + path::INTERVAL, path::INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);

    checks
}

impl Control {
    /// Passes the peers and replicas of the desired state to path checks, status and reporter.
    pub(super) fn follow_peers(&mut self) {
        let now = Instant::now();
        let peers = self.served.planned.fabric.peers.iter();
        let peers = peers.map(|peer| {
            let is_checked = peer.echo_responder().is_some();
            (peer.cluster_id.as_str(), tunnel_role(peer), is_checked)
        });
        self.paths.set_peers(peers, now);
        for cluster_id in self.served.unserved_peers.keys() {
            self.paths
                .note_connection(cluster_id, ConnectionState::Error, now);
        }
        let fabric = &self.served.planned.fabric;
        self.state.retain_paths(|id| fabric.peer(id).is_some());
        let ready = fabric.replicas.iter().filter(|replica| replica.ready);
        let ready = ready.map(|replica| replica.name.clone());
        if let Some(reporter) = &self.reporter {
            reporter.set_live(ready);
            let served = self.served.planned.peers.iter();
            let served = served.map(|peer| peer.cluster_id.as_str());
            reporter.set_peers(served, self.served.unserved_peers.clone());
        }
    }

    /// Runs one path check: reads the last probe of each node, then reports all changes.
    pub(super) fn check_paths(&mut self) {
        if let Some(kinds) = self.aggregate.kinds() {
            let _ = self.lanes.send_others(&kinds); // The next check repeats the command.
        }
        let last_requests = match lock(&self.datapath).last_requests() {
            Ok(last_requests) => last_requests,
            Err(error) => {
                // Without the probes, the state of the last check remains.
                tracing::warn!(%error, "failed to read the nodes' probes");
                return;
            }
        };
        let now = Instant::now();
        self.paths
            .check(&self.served.planned.fabric.nodes, &last_requests, now);

        let mut nodes = self.paths.nodes();
        nodes.echo_responder &= self.served.planned.fabric.echo_responder().is_some();
        if nodes != self.nodes && self.lanes.send(Command::Nodes(nodes)).is_ok() {
            self.nodes = nodes;
        }
        let unhealthy = self.paths.unhealthy_nodes();
        let unhealthy = unhealthy.map(|(name, overlay)| (name.to_owned(), overlay.name()));
        self.state.note_nodes(nodes, unhealthy.collect());
        let changes = self.paths.poll_changes(now);
        for (cluster_id, verdict) in &changes {
            let (reason, message) = (verdict.reason.name(), &verdict.message);
            if verdict.reason.is_fault() {
                tracing::warn!(peer = cluster_id, reason, message, "path broken");
            } else {
                tracing::info!(
                    peer = cluster_id,
                    reason,
                    message,
                    "path is healthy, or its health is unknown"
                );
            }
            self.state.note_path(cluster_id, verdict);
        }
        if let Some(reporter) = &self.reporter {
            for (cluster_id, verdict) in changes {
                reporter.note_path(cluster_id, verdict);
            }
        }
    }
}

/// Returns this cluster's role in the tunnel, with the address or port of the server side.
fn tunnel_role(peer: &Peer) -> TunnelRole {
    match &peer.role {
        Role::Server { port } => TunnelRole::Server { port: *port },
        Role::Client { addresses, port } => TunnelRole::Client {
            addresses: addresses.clone(),
            port: *port,
        },
    }
}
