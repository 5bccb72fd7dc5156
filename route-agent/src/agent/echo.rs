//! The agent's use of the echo socket: path health, and replies to remote nodes.

use super::Agent;
use crate::echo_responder;
use control_api::fabric::Fabric;
use std::net::Ipv4Addr;
use std::time::Instant;

impl Agent {
    /// Handles what the socket has received, sends the requests that are due, and reports changes
    /// to the gateways.
    pub(super) fn probe_paths(&mut self) {
        let Some(socket) = &mut self.echo else {
            return;
        };
        let now = Instant::now();
        // Before the timeout: a reply in the socket's queue is no miss.
        socket.receive(&mut self.paths, &self.remote, now);
        self.paths.handle_timeout(now);
        socket.send_requests(&mut self.paths);
        if self.paths.poll_change() {
            self.liveness.set_down_paths(self.paths.down());
            self.report_paths();
        }
    }

    /// Probes the clusters that some gateway reaches; gateways themselves report the others.
    pub(super) fn update_echo_targets(&mut self) {
        let view = self.liveness.view();
        let peers = self.fabric.peers.iter();
        let reached = peers.filter(|peer| !view.replicas_of(&peer.cluster_id).is_empty());
        let targets = reached
            .filter_map(|peer| Some((peer.cluster_id.clone(), peer.echo_responder()?)))
            .collect();
        self.paths.set_targets(&targets, Instant::now());

        let remote = self.fabric.peers.iter().flat_map(Fabric::remote_cidrs);
        self.remote = remote.collect();
        let responds = self.echo.is_some() && self.fabric.echo_responder().is_some();
        self.liveness.set_echo_responder(responds);
    }

    /// Binds the echo socket, and again after the node's address has changed.
    ///
    /// Traffic does not depend on it: without the socket this node neither probes paths nor replies.
    pub(super) async fn bind_echo(&mut self, address: Ipv4Addr) {
        if self.echo.as_ref().map(echo_responder::Socket::address) == Some(address) {
            return;
        }
        self.echo = match echo_responder::Socket::bind(address).await {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "failed to bind the echo socket, path health is unknown: is its port in use?");
                None
            }
        };
        self.update_echo_targets();
    }

    /// Reports to the gateways that this agent stops intentionally.
    pub(crate) fn announce_stop(&mut self) {
        if let Some(probe) = &self.probe {
            self.liveness.announce_stop(Instant::now());
            probe.send(&mut self.liveness);
        }
    }
}

/// Completes when a message may be readable; never without a socket.
pub(super) async fn readable(echo: Option<&echo_responder::Socket>) {
    match echo {
        Some(echo) => echo.readable().await,
        None => std::future::pending().await,
    }
}
