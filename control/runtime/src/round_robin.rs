//! Queues that are served round-robin, so that one with many values does not delay the others.

use crate::controller::Queue;
use std::collections::{BTreeMap, VecDeque};

/// Values by queue. Each queue that has values is in `order` once.
#[derive(Debug)]
pub(crate) struct RoundRobin<T> {
    queues: BTreeMap<Queue, VecDeque<T>>,
    /// The first one is served next.
    order: VecDeque<Queue>,
}

impl<T> Default for RoundRobin<T> {
    fn default() -> Self {
        let (queues, order) = (BTreeMap::new(), VecDeque::new());
        Self { queues, order }
    }
}

impl<T> RoundRobin<T> {
    pub(crate) fn push(&mut self, queue: Queue, value: T) {
        let values = self.queues.entry(queue.clone()).or_default();
        if values.is_empty() {
            self.order.push_back(queue);
        }
        values.push_back(value);
    }

    /// Takes the first value of the next queue that may be served.
    pub(crate) fn pop(&mut self, may_serve: impl Fn(&Queue) -> bool) -> Option<(Queue, T)> {
        let position = self.order.iter().position(may_serve)?;
        let queue = self.order.remove(position)?;
        let values = self.queues.get_mut(&queue)?;
        let value = values.pop_front()?;
        if values.is_empty() {
            self.queues.remove(&queue);
        } else {
            self.order.push_back(queue.clone());
        }

        Some((queue, value))
    }

    /// Removes values, and returns them.
    pub(crate) fn remove(&mut self, is_removed: impl Fn(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for values in self.queues.values_mut() {
            let (gone, kept): (VecDeque<_>, _) =
                std::mem::take(values).into_iter().partition(&is_removed);
            *values = kept;
            removed.extend(gone);
        }
        self.queues.retain(|_, values| !values.is_empty());
        self.order.retain(|queue| self.queues.contains_key(queue));

        removed
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
