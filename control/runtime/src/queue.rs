//! Work items that are to be planned: each once, queues round-robin, failed ones after a delay.

use crate::controller::Queue;
use crate::round_robin::RoundRobin;
use control_client::backoff::Backoff;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Delay of an item after failures.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(200),
    max: Duration::from_secs(60),
};

/// The items of one controller.
#[derive(Debug)]
pub(crate) struct WorkQueue<I> {
    /// Items that are due, with the time since when they are.
    due: RoundRobin<(I, Instant)>,
    /// The items in `due`.
    members: BTreeSet<I>,
    delayed: BTreeSet<(Instant, I)>,
    /// The earliest time of each item in `delayed`.
    delays: BTreeMap<I, Instant>,
    /// Failures of each item since its last success.
    failures: BTreeMap<I, u32>,
}

impl<I> Default for WorkQueue<I> {
    fn default() -> Self {
        Self {
            due: RoundRobin::default(),
            members: BTreeSet::new(),
            delayed: BTreeSet::new(),
            delays: BTreeMap::new(),
            failures: BTreeMap::new(),
        }
    }
}

impl<I: Ord + Clone> WorkQueue<I> {
    /// Adds an item that is due, unless it is already.
    pub(crate) fn push(&mut self, item: I, queue: Queue, now: Instant) {
        if self.members.insert(item.clone()) {
            self.due.push(queue, (item, now));
        }
    }

    /// Adds an item that is due after a delay. An earlier time is kept.
    pub(crate) fn push_at(&mut self, item: I, at: Instant) {
        if let Some(earlier) = self.delays.get(&item) {
            if *earlier <= at {
                return;
            }
            self.delayed.remove(&(*earlier, item.clone()));
        }
        self.delays.insert(item.clone(), at);
        self.delayed.insert((at, item));
    }

    /// Takes the next due item, with the time that it has waited.
    pub(crate) fn pop(
        &mut self,
        now: Instant,
        queue: impl Fn(&I) -> Queue,
    ) -> Option<(I, Duration)> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
            && let Some((at, item)) = self.delayed.pop_first()
        {
            self.delays.remove(&item);
            let queue = queue(&item);
            self.push(item, queue, at);
        }
        let (_, (item, since)) = self.due.pop(|_| true)?;
        self.members.remove(&item);

        Some((item, now.saturating_duration_since(since)))
    }

    /// Notes that an item has succeeded.
    pub(crate) fn succeeded(&mut self, item: &I) {
        self.failures.remove(item);
    }

    /// Notes that an item has failed, and adds it again after a delay. `random` is from 0 to 1.
    pub(crate) fn failed(&mut self, item: I, now: Instant, random: f64) {
        let failures = self.failures.entry(item.clone()).or_default();
        let delay = BACKOFF.delay(*failures, random);
        *failures = failures.saturating_add(1);
        self.push_at(item, now + delay);
    }

    /// Returns when [`pop`](Self::pop) returns an item next.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.due.is_empty() {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    /// Returns the number of items that are due or delayed.
    pub(crate) fn len(&self) -> usize {
        self.members.len() + self.delayed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(item: &&'static str) -> Queue {
        Queue(item.split('/').next().unwrap_or_default().to_owned())
    }

    fn pop(items: &mut WorkQueue<&'static str>, now: Instant) -> Option<&'static str> {
        items.pop(now, queue).map(|(item, _)| item)
    }

    #[test]
    fn queues_take_turns_and_an_item_is_due_once() {
        let now = Instant::now();
        let mut items = WorkQueue::default();
        for item in ["a/1", "a/2", "a/3", "b/1", "a/1"] {
            items.push(item, queue(&item), now);
        }

        assert_eq!(items.len(), 4);
        let order = std::iter::from_fn(|| pop(&mut items, now));
        assert_eq!(Vec::from_iter(order), ["a/1", "b/1", "a/2", "a/3"]);
    }

    #[test]
    fn an_item_that_fails_is_delayed_more_each_time_until_it_succeeds() {
        let start = Instant::now();
        let mut items = WorkQueue::default();
        let mut delays = Vec::new();
        for _ in 0..12 {
            items.failed("a", start, 0.5);
            let at = items.next_at(start).unwrap();
            assert_eq!(pop(&mut items, start), None);
            assert_eq!(pop(&mut items, at), Some("a"));
            delays.push(at - start);
        }

        assert_eq!(delays[..2], [BACKOFF.min, BACKOFF.min * 2]);
        assert_eq!(delays[11], BACKOFF.max);
        items.succeeded(&"a");
        items.failed("a", start, 0.5);
        assert_eq!(items.next_at(start), Some(start + BACKOFF.min));
    }

    #[test]
    fn of_two_delays_the_shorter_one_counts() {
        let start = Instant::now();
        let mut items = WorkQueue::default();
        let second = Duration::from_secs(1);
        items.push_at("a", start + second);
        items.push_at("a", start + second * 9);
        assert_eq!(items.len(), 1);
        items.push_at("a", start + second / 2);

        assert_eq!(items.len(), 1);
        assert_eq!(items.next_at(start), Some(start + second / 2));
        assert_eq!(pop(&mut items, start + second), Some("a"));
        assert_eq!(items.next_at(start), None);
    }

    #[test]
    fn a_due_item_waits_from_when_it_was_due() {
        let start = Instant::now();
        let mut items = WorkQueue::default();
        let second = Duration::from_secs(1);
        items.push_at("a", start + second);

        let popped = items.pop(start + second * 3, queue);

        assert_eq!(popped, Some(("a", second * 2)));
    }
}
