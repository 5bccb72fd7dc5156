//! Limits how often a state is written without effect, because others change fields of their own. The virtual kubelet sees that an
//! object has changed, but not whether a reflected field has.

use super::item::WorkItem;
use control_runtime::Digest;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Writes without effect after which the next ones wait.
const FREE: u8 = 3;

/// Shortest interval between the next ones.
const INTERVAL: Duration = Duration::from_secs(10);

/// The last writes without effect, by object.
#[derive(Debug, Default)]
pub(super) struct IdleWrites {
    items: BTreeMap<WorkItem, Idle>,
}

#[derive(Debug)]
struct Idle {
    state: Digest,
    at: Instant,
    count: u8,
}

impl IdleWrites {
    /// Notes that a write of a state had no effect.
    pub(super) fn note(&mut self, item: &WorkItem, state: Digest, at: Instant) {
        let known = self
            .items
            .get(item)
            .filter(|it| it.state == state && at.saturating_duration_since(it.at) <= 2 * INTERVAL);
        let count = known.map_or(1, |it| it.count.saturating_add(1));
        self.items.insert(item.clone(), Idle { state, at, count });
    }

    /// Returns how long a state is not written.
    pub(super) fn rest(&self, item: &WorkItem, state: Digest, now: Instant) -> Option<Duration> {
        let idle = self.items.get(item)?;
        let is_often = idle.state == state && idle.count >= FREE;
        let rest = INTERVAL.saturating_sub(now.saturating_duration_since(idle.at));

        Some(rest).filter(|it| is_often && !it.is_zero())
    }

    /// Drops the writes of an object.
    pub(super) fn forget(&mut self, item: &WorkItem) {
        self.items.remove(item);
    }
}
