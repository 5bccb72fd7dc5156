//! How much of a resource is in use, in total and by source: connections, streams, or bytes of request bodies.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Returns the source as which a client is counted. An IPv4 client of a socket of both families is the same source.
pub fn source(client: SocketAddr) -> IpAddr {
    client.ip().to_canonical()
}

/// Limits of an amount.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Of all sources.
    pub total: usize,
    /// Of one source, such as an address or a user.
    pub per_source: usize,
}

/// The limit that a further amount exceeds: `limit` or `limit_per_source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded(pub &'static str);

/// Amounts in use. Clones share them. Sources without any take no memory.
#[derive(Debug)]
pub struct Slots<K> {
    limit: Limit,
    used: Arc<Mutex<Used<K>>>,
}

#[derive(Debug)]
struct Used<K> {
    total: usize,
    by_source: BTreeMap<K, usize>,
}

/// An amount that a source uses until this value is dropped.
#[derive(Debug)]
pub struct Slot<K: Ord> {
    slots: Slots<K>,
    source: K,
    amount: usize,
}

impl<K> Clone for Slots<K> {
    fn clone(&self) -> Self {
        Self {
            limit: self.limit,
            used: Arc::clone(&self.used),
        }
    }
}

impl<K: Ord> Slots<K> {
    /// Creates slots of which none is in use.
    pub fn new(limit: Limit) -> Self {
        let used = Used {
            total: 0,
            by_source: BTreeMap::new(),
        };

        Self {
            limit,
            used: Arc::new(Mutex::new(used)),
        }
    }

    /// Returns a slot of a source, without an amount yet.
    pub fn slot(&self, source: K) -> Slot<K> {
        Slot {
            slots: self.clone(),
            source,
            amount: 0,
        }
    }

    /// Returns a slot of a source with the amount 1, such as a connection.
    ///
    /// # Errors
    ///
    /// Returns the limit that would be exceeded.
    pub fn take(&self, source: K) -> Result<Slot<K>, Exceeded>
    where
        K: Clone,
    {
        let mut slot = self.slot(source);
        slot.add(1)?;

        Ok(slot)
    }

    /// Returns the amount that is in use.
    pub fn total(&self) -> usize {
        self.used().total
    }

    fn used(&self) -> MutexGuard<'_, Used<K>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> Slot<K> {
    /// Adds to the amount of the slot.
    ///
    /// # Errors
    ///
    /// Returns the limit that would be exceeded. The amount stays as it is then.
    pub fn add(&mut self, amount: usize) -> Result<(), Exceeded> {
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
        used.by_source.insert(self.source.clone(), of_source);
        used.total = total;
        self.amount += amount;

        Ok(())
    }
}

impl<K: Ord> Drop for Slot<K> {
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
    use proptest::prelude::*;

    #[test]
    fn one_source_leaves_room_for_others_and_a_dropped_slot_is_free() {
        let slots = Slots::new(Limit {
            total: 5,
            per_source: 3,
        });

        let mut first = slots.slot("a");
        assert_eq!(first.add(3), Ok(()));
        assert_eq!(first.add(1), Err(Exceeded("limit_per_source")));
        assert_eq!(slots.take("a").unwrap_err(), Exceeded("limit_per_source"));
        let second = [(); 2].map(|()| slots.take("b").unwrap());
        assert_eq!(slots.take("b").unwrap_err(), Exceeded("limit"));
        drop(first);
        assert_eq!(slots.total(), 2);
        let third = slots.take("b").unwrap();

        drop((second, third));
        assert_eq!(slots.total(), 0);
        assert!(slots.used().by_source.is_empty());
    }

    #[test]
    fn an_ipv4_client_of_a_socket_of_both_families_is_the_same_source() {
        let [one, other] = ["10.1.0.9:1", "[::ffff:10.1.0.9]:2"].map(|it| it.parse().unwrap());

        assert_eq!(source(one), source(other));
    }

    #[test]
    fn an_amount_that_would_overflow_exceeds_the_limit() {
        let slots = Slots::new(Limit {
            total: usize::MAX - 1,
            per_source: usize::MAX,
        });
        let mut slot = slots.slot(());

        slot.add(1).unwrap();

        assert_eq!(slot.add(usize::MAX), Err(Exceeded("limit")));
        assert_eq!(slots.total(), 1);
    }

    proptest! {
        #[test]
        fn both_limits_hold_and_dropped_slots_are_free(
            steps in prop::collection::vec((any::<bool>(), 0..4_usize), 0..60),
        ) {
            let limit = Limit { total: 5, per_source: 3 };
            let slots = Slots::new(limit);
            let mut open: [Vec<Slot<usize>>; 4] = Default::default();
            for (ends, source) in steps {
                let total = open.iter().map(Vec::len).sum::<usize>();
                let of_source = &mut open[source];
                if ends {
                    of_source.pop();
                } else {
                    let expected = match (of_source.len(), total) {
                        (3, _) => Some(Exceeded("limit_per_source")),
                        (_, 5) => Some(Exceeded("limit")),
                        _ => None,
                    };
                    let taken = slots.take(source);
                    prop_assert_eq!(taken.as_ref().err().copied(), expected);
                    of_source.extend(taken);
                }
                prop_assert_eq!(slots.total(), open.iter().map(Vec::len).sum::<usize>());
                let sources = open.iter().filter(|it| !it.is_empty()).count();
                prop_assert_eq!(slots.used().by_source.len(), sources);
            }
        }
    }
}
