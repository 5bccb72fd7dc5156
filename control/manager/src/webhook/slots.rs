//! How much of a resource is in use, in total and by source: connections, or bytes of request bodies.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Limits of an amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Of all sources.
    pub(crate) total: usize,
    /// Of one source address.
    pub(crate) per_source: usize,
}

/// The limit that a further amount exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exceeded(pub(super) &'static str);

/// Amounts in use. Clones share them. Sources without any take no memory.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    limit: Limit,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_source: BTreeMap<IpAddr, usize>,
}

/// An amount that a source uses until this value is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    source: IpAddr,
    amount: usize,
}

impl Slots {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            limit,
            used: Arc::default(),
        }
    }

    /// Returns a slot of a source, without an amount yet.
    pub(super) fn slot(&self, source: IpAddr) -> Slot {
        Slot {
            slots: self.clone(),
            source: source.to_canonical(),
            amount: 0,
        }
    }

    /// Returns the amount that is in use.
    pub(super) fn total(&self) -> usize {
        self.used().total
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Adds to the amount of the slot.
    ///
    /// # Errors
    ///
    /// Returns the limit that would be exceeded. The amount stays as it is then.
    pub(super) fn add(&mut self, amount: usize) -> Result<(), Exceeded> {
        let mut used = self.slots.used();
        let of_source = used.by_source.get(&self.source).copied();
        let of_source = of_source.unwrap_or_default().saturating_add(amount);
        let total = used.total.saturating_add(amount);
        if of_source > self.slots.limit.per_source {
            return Err(Exceeded("limit_per_source"));
        }
        if total > self.slots.limit.total {
            return Err(Exceeded("limit"));
        }
        used.by_source.insert(self.source, of_source);
        used.total = total;
        self.amount += amount;

        Ok(())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut used = self.slots.used();
        used.total -= self.amount;
        if let Some(of_source) = used.by_source.get_mut(&self.source) {
            *of_source -= self.amount;
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
            total: 5,
            per_source: 3,
        });
        let [first, second] = ["10.0.0.1", "::ffff:10.0.0.2"].map(|it| it.parse().unwrap());

        let mut of_first = slots.slot(first);
        assert_eq!(of_first.add(3), Ok(()));
        assert_eq!(slots.slot(first).add(1), Err(Exceeded("limit_per_source")));
        let mut of_second = slots.slot(second);
        assert_eq!(of_second.add(2), Ok(()));
        let same = "10.0.0.2".parse().unwrap();
        assert_eq!(slots.slot(same).add(1), Err(Exceeded("limit")));
        drop(of_first);
        assert_eq!(slots.total(), 2);
        assert_eq!(slots.slot(same).add(1), Ok(()));

        drop(of_second);
        assert_eq!(slots.total(), 0);
        assert!(slots.used().by_source.is_empty());
    }
}
