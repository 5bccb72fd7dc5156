//! The start of a replica, while peers know it and nodes do not.
//!
//! A peer discovers a new replica within milliseconds. The nodes learn of it from the API server, and
//! drop packets from unknown addresses. So this replica advertises until then that peers should
//! prefer others. Peers of the only replica use it all the same.

use super::Control;
use crate::path;
use crate::shell::lane::Command;
use crate::shell::state::lock;
use std::future;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Interval of the checks whether all nodes know this replica.
const INTERVAL: Duration = Duration::from_millis(100);

/// Limit of the wait, since a node may be down.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait for the nodes.
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

/// Waits for the next check; pending forever when the wait has ended.
pub(super) async fn next_check(standby: Option<Standby>) {
    match standby {
        Some(standby) => sleep_until(standby.next_check).await,
        None => future::pending().await,
    }
}

impl Control {
    /// Lets peers use this replica if all nodes know it, or if the wait is over.
    pub(super) fn end_standby(&mut self) {
        let Some(standby) = &mut self.standby else {
            return;
        };
        let now = Instant::now();
        standby.next_check = now + INTERVAL;
        let is_late = now >= standby.until;
        let sightings = lock(&self.datapath).sightings();
        let is_known = sightings
            .is_ok_and(|sightings| path::is_known_to_all(&self.served.fabric.nodes, &sightings));
        if !is_known && !is_late {
            return;
        }
        if is_late && !is_known {
            tracing::warn!(
                "not all nodes know this replica yet: packets of peers to those may be lost"
            );
        }
        if self.lanes.send(Command::Standby(false)).is_ok() {
            self.standby = None;
        }
    }
}
