//! Records the newest timestamp of a peer's initiations per slot. The gateway can thus refuse a
//! replayed initiation even after its session was removed.
//!
//! WireGuard remembers one timestamp per peer (whitepaper, section 5.1). Here the replicas of a
//! cluster share one key, but have different clocks. A slot is used by only one replica, so there
//! is one timestamp per slot.

use super::noise::Timestamp;
use std::collections::BTreeMap;

/// Upper limit of slots per peer. It is five times the limit of sessions per peer, and costs 40 KB
/// of memory.
///
/// A client that tries to discover a lost replica opens one session per second, so it uses up these
/// slots in 17 minutes.
const SLOTS_MAX: usize = 1_024;

/// Newest timestamps of one peer.
#[derive(Debug, Default)]
pub(super) struct Timestamps {
    by_slot: BTreeMap<u32, Timestamp>,
    /// Newest timestamp of the slots that were removed at the limit. The first initiation of an
    /// unknown slot must have a newer timestamp. The initiations of a replica whose clock is behind
    /// may therefore be refused until its clock passes this timestamp.
    newest_removed: Timestamp,
}

impl Timestamps {
    /// Records the timestamp of an initiation for `slot`, and returns whether it is newer than all
    /// earlier ones of the slot.
    pub(super) fn take(&mut self, slot: u32, timestamp: Timestamp) -> bool {
        let newest = self.by_slot.get(&slot).unwrap_or(&self.newest_removed);
        if timestamp <= *newest {
            return false;
        }
        self.by_slot.insert(slot, timestamp);

        if self.by_slot.len() > SLOTS_MAX {
            let oldest = self.by_slot.iter().min_by_key(|(_, timestamp)| **timestamp);
            if let Some((slot, timestamp)) = oldest.map(|(slot, timestamp)| (*slot, *timestamp)) {
                self.by_slot.remove(&slot);
                self.newest_removed = timestamp;
            }
        }

        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_slot_has_its_own_newest_timestamp() {
        let mut timestamps = Timestamps::default();

        assert!(timestamps.take(1, Timestamp::of(100)));
        assert!(timestamps.take(2, Timestamp::of(50)));
        assert!(!timestamps.take(1, Timestamp::of(100)));
        assert!(!timestamps.take(1, Timestamp::of(99)));
        assert!(timestamps.take(1, Timestamp::of(101)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn no_initiation_is_taken_twice_whatever_is_forgotten(
            initiations in proptest::collection::vec((0..4_000_u32, 1..5_000_u32), 1..4_000),
        ) {
            let mut timestamps = Timestamps::default();
            let mut taken = std::collections::BTreeSet::new();

            for (slot, number) in &initiations {
                if timestamps.take(*slot, Timestamp::of(*number)) {
                    prop_assert!(taken.insert((*slot, *number)));
                }
                prop_assert!(timestamps.by_slot.len() <= SLOTS_MAX);
            }
            for (slot, number) in taken {
                prop_assert!(!timestamps.take(slot, Timestamp::of(number)));
            }
        }
    }
}
