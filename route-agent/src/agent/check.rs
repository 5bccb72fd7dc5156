//! The agent's part in the checks of the way to remote clusters' nodes, and in theirs to this one.

use super::Agent;
use crate::reflector;
use control_api::fabric::Fabric;
use std::net::Ipv4Addr;
use std::time::Instant;

impl Agent {
    /// Answers first, as with the probes; then asks what is due, and tells the gateways what is lost.
    pub(super) fn check_paths(&mut self) {
        let Some(socket) = &mut self.checks else {
            return;
        };
        let now = Instant::now();
        socket.receive(&mut self.paths, &self.remote, now);
        self.paths.handle_timeout(now);
        socket.ask(&mut self.paths);
        if self.paths.poll_change() {
            self.liveness.set_lost(self.paths.lost());
            self.report_paths();
        }
    }

    /// Checks the clusters that some gateway reaches; of the others the gateways themselves know.
    pub(super) fn follow_peers(&mut self) {
        let view = self.liveness.view();
        let peers = self.fabric.peers.iter();
        let reached = peers.filter(|peer| !view.replicas_of(&peer.cluster_id).is_empty());
        let targets = reached
            .filter_map(|peer| Some((peer.cluster_id.clone(), peer.reflector()?)))
            .collect();
        self.paths.set_targets(&targets, Instant::now());

        let remote = self.fabric.peers.iter().flat_map(Fabric::remote_cidrs);
        self.remote = remote.collect();
        let reflects = self.checks.is_some() && self.fabric.reflector().is_some();
        self.liveness.set_reflects(reflects);
    }

    /// Binds the checks' socket, again where the node's address has changed.
    ///
    /// Without it packets flow all the same: this node checks nothing then and answers nobody.
    pub(super) async fn open_checks(&mut self, address: Ipv4Addr) {
        if self.checks.as_ref().map(reflector::Socket::address) == Some(address) {
            return;
        }
        self.checks = match reflector::Socket::bind(address).await {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "failed to bind the socket of the end-to-end checks: is its port in use?");
                None
            }
        };
        self.follow_peers();
    }

    /// Tells the gateways that this agent stops, and that it is no fault.
    pub(crate) fn rest(&mut self) {
        if let Some(probe) = &self.probe {
            self.liveness.rest(Instant::now());
            probe.send(&mut self.liveness);
        }
    }
}

/// Completes when there may be a message; never without a socket.
pub(super) async fn readable(checks: Option<&reflector::Socket>) {
    match checks {
        Some(checks) => checks.readable().await,
        None => std::future::pending().await,
    }
}
