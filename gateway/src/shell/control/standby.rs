//! The first moments of a replica, when its peers know it and its nodes do not.
//!
//! A peer meets a new replica within milliseconds; the nodes hear of it by way of the API
//! server, and take nothing from an address that they do not know. What the peer sent by
//! way of this replica would be lost until then, so it is told to use the others, if there
//! are any. Where this replica is the only one, that changes nothing.

use super::Control;
use crate::path;
use crate::shell::lane::Command;
use crate::shell::state::lock;
use std::future;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Between two looks whether the nodes know this replica.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long to wait for nodes of which one, perhaps, never comes.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The wait for the nodes.
#[derive(Clone, Copy)]
pub(super) struct Standby {
    until: Instant,
    next_look: Instant,
}

impl Standby {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            until: now + WAIT_MAX,
            next_look: now,
        }
    }
}

/// Waits until it is time to look, if there is something to wait for.
pub(super) async fn next_look(standby: Option<Standby>) {
    match standby {
        Some(standby) => sleep_until(standby.next_look).await,
        None => future::pending().await,
    }
}

impl Control {
    /// Lets peers use this replica if all nodes know it.
    pub(super) fn come_forward(&mut self) {
        let Some(standby) = &mut self.standby else {
            return;
        };
        let now = Instant::now();
        standby.next_look = now + INTERVAL;
        let is_late = now >= standby.until;
        let sightings = lock(&self.datapath).sightings();
        let is_known = sightings
            .is_ok_and(|sightings| path::is_known_to_all(&self.served.fabric.nodes, &sightings));
        if !is_known && !is_late {
            return;
        }
        if is_late && !is_known {
            tracing::warn!(
                "not all nodes know this replica yet: what peers send to those may be lost"
            );
        }
        if self.lanes.send(Command::Standby(false)).is_ok() {
            self.standby = None;
        }
    }
}
