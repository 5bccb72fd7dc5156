//! A work queue in the order of arrival, which makes tests repeatable.

use crate::network::item::WorkItem;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a task waits after it has failed once; each further failure doubles that.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// The longest wait: short beside a person's patience, long beside an API server's.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Tasks to be done.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    ready: VecDeque<WorkItem>,
    /// The items of `ready`.
    members: BTreeSet<WorkItem>,
    delayed: BTreeSet<(Instant, WorkItem)>,
    /// How often each has failed since it was done last.
    failures: BTreeMap<WorkItem, u32>,
}

impl Queue {
    /// Adds a task, unless it waits already.
    pub(super) fn push(&mut self, task: WorkItem) {
        if self.members.insert(task.clone()) {
            self.ready.push_back(task);
        }
    }

    /// Takes the next task that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<WorkItem> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
        {
            if let Some((_, task)) = self.delayed.pop_first() {
                self.push(task);
            }
        }
        let task = self.ready.pop_front()?;
        self.members.remove(&task);

        Some(task)
    }

    /// Notes that a task has failed; it comes again later.
    pub(super) fn failed(&mut self, task: WorkItem, now: Instant) {
        let failures = self.failures.entry(task.clone()).or_default();
        let doublings = (*failures).min(16);
        *failures += 1;
        let delay = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
        self.delayed.retain(|(_, delayed)| *delayed != task);
        self.delayed.insert((now + delay, task));
    }

    /// Returns when [`pop`](Self::pop) gives something next.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }
}
