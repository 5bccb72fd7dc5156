//! How many connections or streams are open, in total and by source address or user.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits of a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Of all sources.
    pub(crate) total: usize,
    /// Of one source.
    pub(crate) per_source: usize,
}

/// The limit that one more would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded(pub(crate) &'static str);

/// The slots in use. Clones share it. Sources without any take no memory.
#[derive(Clone, Debug)]
pub(crate) struct Slots<K> {
    limit: Limit,
    used: Arc<Mutex<Used<K>>>,
}

#[derive(Debug)]
struct Used<K> {
    total: usize,
    by_source: BTreeMap<K, usize>,
}

/// One that is in use until this value is dropped.
#[derive(Debug)]
pub(crate) struct Slot<K: Ord> {
    slots: Slots<K>,
    source: K,
}

impl<K: Ord> Slots<K> {
    /// Creates slots of which none is in use.
    pub(crate) fn new(limit: Limit) -> Self {
        let used = Used {
            total: 0,
            by_source: BTreeMap::new(),
        };
        Self {
            limit,
            used: Arc::new(Mutex::new(used)),
        }
    }

    /// Takes a slot for a source.
    ///
    /// # Errors
    ///
    /// Returns the limit that would be exceeded.
    pub(crate) fn take(&self, source: K) -> Result<Slot<K>, Exceeded>
    where
        K: Clone,
    {
        let mut used = self.used();
        let of_source = used.by_source.get(&source).copied().unwrap_or_default();
        if of_source >= self.limit.per_source {
            return Err(Exceeded("limit_per_source"));
        }
        if used.total >= self.limit.total {
            return Err(Exceeded("limit"));
        }
        used.total += 1;
        used.by_source.insert(source.clone(), of_source + 1);
        let slots = Self {
            limit: self.limit,
            used: Arc::clone(&self.used),
        };

        Ok(Slot { slots, source })
    }

    /// Returns how many are in use.
    pub(crate) fn total(&self) -> usize {
        self.used().total
    }

    fn used(&self) -> MutexGuard<'_, Used<K>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord> Drop for Slot<K> {
    fn drop(&mut self) {
        let mut used = self.slots.used();
        used.total -= 1;
        if let Some(of_source) = used.by_source.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                used.by_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_source_leaves_room_for_others_and_a_dropped_slot_is_free() {
        let slots = Slots::new(Limit {
            total: 3,
            per_source: 2,
        });
        let first: Vec<_> = (0..2).map(|_| slots.take("a").unwrap()).collect();
        assert_eq!(slots.take("a").unwrap_err(), Exceeded("limit_per_source"));
        let second = slots.take("b").unwrap();
        assert_eq!(slots.take("b").unwrap_err(), Exceeded("limit"));

        drop(first);
        assert_eq!(slots.total(), 1);
        let third = slots.take("b").unwrap();

        drop((second, third));
        assert_eq!(slots.total(), 0);
        assert!(slots.used().by_source.is_empty());
    }
}
