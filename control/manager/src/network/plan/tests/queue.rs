//! A first-in, first-out work queue, which makes tests deterministic.

use crate::network::item::WorkItem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Backoff after the first failure of an item. Each further failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// Largest backoff.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Items to plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<WorkItem>,
    /// The items of `ready`.
    members: BTreeSet<WorkItem>,
    delayed: BTreeSet<(Instant, WorkItem)>,
    /// Number of failures of each item since its last success.
    failures: BTreeMap<WorkItem, u32>,
}

impl Queue {
    /// Adds an item, unless it is already queued.
    pub(super) fn push(&mut self, item: WorkItem) {
        if self.members.insert(item.clone()) {
            self.ready.push_back(item);
        }
    }

    /// Removes and returns the next item that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<WorkItem> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            if let Some((_, item)) = self.delayed.pop_first() {
                self.push(item);
            }
        }
        let item = self.ready.pop_front()?;
        self.members.remove(&item);

        Some(item)
    }

    /// Queues a failed item again, with backoff.
    pub(super) fn failed(&mut self, item: WorkItem, now: Instant) {
        let failures = self.failures.entry(item.clone()).or_default();
        let doublings = (*failures).min(16);
        *failures += 1;
        let delay = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
        self.delayed.retain(|(_, delayed)| *delayed != item);
        self.delayed.insert((now + delay, item));
    }

    /// Returns the time at which [`pop`](Self::pop) returns the next item.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }
}
