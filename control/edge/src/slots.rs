//! How many connections are open, in total and by source.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Limits of the number of connections.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of connections.
    pub total: usize,
    /// Maximum number of connections of one source address.
    pub per_source: usize,
}

/// The limit that a further connection exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Total,
    PerSource,
}

/// Open connections. Sources without connections take no memory.
#[derive(Debug)]
pub(crate) struct Slots {
    limits: Limits,
    total: usize,
    by_source: BTreeMap<IpAddr, usize>,
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            total: 0,
            by_source: BTreeMap::new(),
        }
    }

    /// Takes a slot for a connection of `source`, which [`release`](Self::release) returns.
    pub(crate) fn take(&mut self, source: IpAddr) -> Result<(), Exceeded> {
        let source = source.to_canonical();
        let of_source = self.by_source.get(&source).copied().unwrap_or_default();
        if of_source >= self.limits.per_source {
            return Err(Exceeded::PerSource);
        }
        if self.total >= self.limits.total {
            return Err(Exceeded::Total);
        }
        self.by_source.insert(source, of_source + 1);
        self.total += 1;

        Ok(())
    }

    pub(crate) fn release(&mut self, source: IpAddr) {
        let source = source.to_canonical();
        match self.by_source.get_mut(&source) {
            Some(1) => {
                self.by_source.remove(&source);
            }
            Some(of_source) => *of_source -= 1,
            None => return,
        }
        self.total -= 1;
    }

    /// Returns the number of open connections.
    pub(crate) fn total(&self) -> usize {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_ipv4_source_has_one_slot_count_on_a_socket_of_both_families() {
        let mut slots = Slots::new(Limits {
            total: 9,
            per_source: 1,
        });

        let first = slots.take("10.1.0.9".parse().unwrap());
        let second = slots.take("::ffff:10.1.0.9".parse().unwrap());

        assert_eq!((first, second), (Ok(()), Err(Exceeded::PerSource)));
    }

    proptest! {
        #[test]
        fn both_limits_hold_and_released_slots_are_free_again(
            steps in prop::collection::vec((any::<bool>(), 0..4_u8), 0..60),
        ) {
            let limits = Limits { total: 5, per_source: 3 };
            let mut slots = Slots::new(limits);
            let mut open = [0; 4];
            for (is_release, source) in steps {
                let address = IpAddr::from([10, 0, 0, source]);
                let count = &mut open[usize::from(source)];
                if is_release && *count > 0 {
                    slots.release(address);
                    *count -= 1;
                } else {
                    let taken = slots.take(address);
                    let is_full = *count >= limits.per_source;
                    *count += usize::from(taken.is_ok());
                    let is_over = open.iter().sum::<usize>() > limits.total;
                    prop_assert!(!is_over);
                    prop_assert_eq!(is_full, taken == Err(Exceeded::PerSource));
                }
                prop_assert_eq!(slots.total(), open.iter().sum::<usize>());
                let sources = open.iter().filter(|count| **count > 0).count();
                prop_assert_eq!(slots.by_source.len(), sources);
            }
        }
    }
}
