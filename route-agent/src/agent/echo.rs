//! Echo requests to the nodes of remote clusters, and replies to requests from those nodes.

use super::Agent;
use crate::echo_responder;
use control_fabric::Fabric;
use std::net::Ipv4Addr;
use std::time::Instant;

impl Agent {
    /// Handles received echo messages, and sends the echo requests that are due.
    ///
    /// If the health of a path has changed, the next probes report the change to the gateways.
    pub(super) fn probe_paths(&mut self) {
        let Some(socket) = &mut self.echo else {
            return;
        };
        let now = Instant::now();
        // A reply in the socket's queue must not count as a miss, so read the socket before
        // handling time-outs.
        socket.receive(&mut self.paths, &self.remote, now);
        self.paths.handle_timeout(now);
        socket.send_requests(&mut self.paths);
        if self.paths.poll_change() {
            self.liveness.set_down_paths(self.paths.down());
            self.report_paths();
        }
    }

    /// Sets the remote clusters to which echo requests are sent.
    ///
    /// A cluster that no gateway reaches gets no requests, because the gateways already report the
    /// cluster as unreachable.
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

    /// Binds the echo socket to `address`, unless it is bound to this address already.
    ///
    /// A failure is logged only, because pods' traffic does not depend on the socket. Without the
    /// socket, this node neither sends echo requests nor replies to them.
    pub(super) async fn bind_echo(&mut self, address: Ipv4Addr) {
        if self.echo.as_ref().map(echo_responder::Socket::address) == Some(address) {
            return;
        }
        self.echo = match echo_responder::Socket::bind(address).await {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "failed to bind the echo socket, so path health is unknown: is its port in use?");
                None
            }
        };
        self.update_echo_targets();
    }

    /// Sends a last probe to each gateway replica. The probe reports that this agent stops
    /// intentionally.
    pub(crate) fn announce_stop(&mut self) {
        if let Some(probe) = &self.probe {
            self.liveness.announce_stop(Instant::now());
            probe.send(&mut self.liveness);
        }
    }
}

/// Completes when an echo message may be readable. Without a socket, the future never completes.
pub(super) async fn readable(echo: Option<&echo_responder::Socket>) {
    match echo {
        Some(echo) => echo.readable().await,
        None => std::future::pending().await,
    }
}
