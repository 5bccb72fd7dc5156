//! The standby state of a new replica, before all nodes accept packets from it.
//!
//! A peer discovers a new replica within milliseconds. The nodes receive the address of the replica
//! later, from the API server, and drop packets from unknown addresses. The new replica therefore
//! advertises to the peers that they should prefer other replicas, until all nodes have its
//! address. Peers use a replica in standby if there is no other replica.

use super::Control;
use crate::path;
use crate::shell::lane::Command;
use crate::shell::state::lock;
use std::future;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval between two checks whether all nodes have the address of this replica.
const INTERVAL: Duration = Duration::from_millis(100);

/// Maximum duration of the standby state. A node that is down never has the address.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The deadline of the standby state, and the time of the next check.
#[derive(Clone, Copy)]
pub(super) struct Standby {
    until: Instant,
    next_check: Instant,
}

impl Standby {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            until: now + WAIT_MAX,
            next_check: now,
        }
    }
}

/// Completes when the next check is due; stays pending after the end of the standby state.
pub(super) async fn next_check(standby: Option<Standby>) {
    match standby {
        Some(standby) => sleep_until(standby.next_check).await,
        None => future::pending().await,
    }
}

impl Control {
    /// Ends the standby state if all nodes have the address of this replica, or after [`WAIT_MAX`].
    pub(super) fn end_standby(&mut self) {
        let Some(standby) = &mut self.standby else {
            return;
        };
        let now = Instant::now();
        standby.next_check = now + INTERVAL;
        let is_late = now >= standby.until;
        let last_requests = lock(&self.datapath).last_requests();
        let is_known = last_requests.is_ok_and(|last_requests| {
            path::is_known_to_all(&self.served.planned.fabric.nodes, &last_requests)
        });
        if !is_known && !is_late {
            return;
        }
        if is_late && !is_known {
            tracing::warn!(
                "some nodes do not use this replica yet: they may drop packets from peers"
            );
        }
        if self.lanes.send(Command::Standby(false)).is_ok() {
            self.standby = None;
        }
    }
}
