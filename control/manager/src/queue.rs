//! The work that waits: each task once, in the order of its coming, failed ones later.

use crate::task::Task;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How long a task waits after it has failed once; each further failure doubles that.
const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// The longest wait: short beside a person's patience, long beside an API server's.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Tasks to be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    ready: VecDeque<Task>,
    /// What `ready` holds.
    members: BTreeSet<Task>,
    delayed: BTreeSet<(Instant, Task)>,
    /// How often each has failed since it was done last.
    failures: BTreeMap<Task, u32>,
}

impl Queue {
    /// Adds a task, unless it waits already.
    pub(crate) fn push(&mut self, task: Task) {
        if self.members.insert(task.clone()) {
            self.ready.push_back(task);
        }
    }

    /// Takes the next task that is due.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Task> {
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

    /// Notes that a task is done.
    pub(crate) fn done(&mut self, task: &Task) {
        self.failures.remove(task);
    }

    /// Notes that a task has failed; it comes again later.
    pub(crate) fn failed(&mut self, task: Task, now: Instant) {
        let failures = self.failures.entry(task.clone()).or_default();
        let doublings = (*failures).min(16);
        *failures += 1;
        let delay = BACKOFF_MIN.saturating_mul(1 << doublings).min(BACKOFF_MAX);
        self.delayed.retain(|(_, delayed)| *delayed != task);
        self.delayed.insert((now + delay, task));
    }

    /// Returns when [`pop`](Self::pop) gives something next.
    pub(crate) fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    /// Returns how many tasks wait.
    pub(crate) fn len(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str) -> Task {
        Task::Peer(name.to_owned())
    }

    #[test]
    fn a_task_waits_once_and_in_turn() {
        let now = Instant::now();
        let mut queue = Queue::default();

        for name in ["milan", "naples", "milan"] {
            queue.push(peer(name));
        }

        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop(now), Some(peer("milan")));
        queue.push(peer("milan"));
        assert_eq!(queue.pop(now), Some(peer("naples")));
        assert_eq!(queue.pop(now), Some(peer("milan")));
        assert_eq!(queue.pop(now), None);
    }

    #[test]
    fn a_failed_task_comes_later_and_later_until_it_is_done() {
        let start = Instant::now();
        let mut queue = Queue::default();
        let mut delays = Vec::new();

        for _ in 0..12 {
            queue.failed(peer("milan"), start);
            let at = queue.next_at(start).unwrap();
            assert_eq!(queue.pop(start), None);
            assert_eq!(queue.pop(at), Some(peer("milan")));
            delays.push(at - start);
        }

        assert_eq!(delays[0], BACKOFF_MIN);
        assert_eq!(delays[1], BACKOFF_MIN * 2);
        assert_eq!(delays[11], BACKOFF_MAX);
        queue.done(&peer("milan"));
        queue.failed(peer("milan"), start);
        assert_eq!(queue.next_at(start), Some(start + BACKOFF_MIN));
    }
}
