//! Keeps the sockets at which the kernel joins tunnel datagrams. See [`crate::gro`].

use crate::agent::Agent;
use crate::gro::{self, Flow, Schedule};
use crate::kernel::NetlinkError;
use crate::kernel::gro::{Sockets, entries};
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::task::{JoinError, JoinHandle};

/// The sockets, and the list of flows that they are derived from.
pub(super) struct Tunnels {
    schedule: Schedule,
    listing: Option<Listing>,
    sockets: Sockets,
    /// Whether the last list has failed, which is logged once.
    has_failed: bool,
}

struct Listing {
    /// Number of entries that the list walks over.
    walked: usize,
    task: JoinHandle<Result<Vec<Flow>, NetlinkError>>,
}

/// The result of [`Tunnels::next`].
pub(super) enum Next {
    /// The flows are to be listed now.
    Due,
    /// The list has ended.
    Listed(Result<Result<Vec<Flow>, NetlinkError>, JoinError>),
}

impl Tunnels {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            schedule: Schedule::new(now),
            listing: None,
            sockets: Sockets::default(),
            has_failed: false,
        }
    }

    /// Handles a change of the live replicas, or of the clusters that they reach.
    pub(super) fn handle_change(&mut self, now: Instant) {
        self.schedule.handle_change(now);
    }

    /// Waits until the flows are to be listed, or until a list has ended. The future is cancel safe.
    pub(super) async fn next(&mut self) -> Next {
        let Some(listing) = &mut self.listing else {
            tokio::time::sleep_until(self.schedule.next().into()).await;
            return Next::Due;
        };

        Next::Listed((&mut listing.task).await)
    }

    /// Removes the list that has ended.
    fn handle_listed(&mut self) {
        if let Some(listing) = self.listing.take() {
            self.schedule.handle_listed(Instant::now(), listing.walked);
        }
    }
}

impl Agent {
    /// Starts a list of the flows, or sets the sockets to the ports of a list.
    pub(super) fn join_datagrams(&mut self, next: Next) {
        let replicas = gro::replicas(&self.fabric, &self.options.node);
        let flows = match next {
            Next::Due => return self.list_flows(replicas),
            Next::Listed(flows) => flows,
        };
        self.tunnels.handle_listed();
        let flows = match flows {
            Ok(Ok(flows)) => flows,
            Ok(Err(error)) => return self.tunnels.report(&error),
            Err(error) => return self.tunnels.report(&error),
        };

        let port = self.options.settings.overlay_port;
        let ports = gro::ports(&flows, &replicas, port);
        self.tunnels.sockets.set(&ports);
        self.tunnels.has_failed = false;
        let joined: Vec<_> = self.tunnels.sockets.ports().collect();
        self.status.update(|status| status.tunnel_ports = joined);
    }

    fn list_flows(&mut self, replicas: Vec<Ipv4Addr>) {
        let is_needed = self.options.settings.tunnel_gro && !replicas.is_empty();
        let entries = entries().filter(|entries| is_needed && *entries <= gro::ENTRIES_MAX);
        let listing = match entries {
            Some(entries) => Listing {
                walked: entries * replicas.len() * gro::WALKS,
                task: tokio::spawn(self.kernel.flows(replicas)),
            },
            // An empty list closes the sockets.
            None => Listing {
                walked: 0,
                task: tokio::spawn(std::future::ready(Ok(Vec::new()))),
            },
        };
        self.tunnels.listing = Some(listing);
    }
}

impl Tunnels {
    /// Logs a failure once. The sockets stay.
    fn report(&mut self, error: &dyn std::error::Error) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let cause = error.source().map(ToString::to_string);
            tracing::warn!(
                %error,
                cause,
                "the kernel does not join tunnel datagrams of new sessions, which costs throughput \
                 on cards without UDP segmentation"
            );
        }
    }
}
