//! The newest timestamp of a peer's initiations, per slot: an old initiation is refused also when the session that it
//! opened is forgotten.
//!
//! WireGuard remembers one timestamp per peer (whitepaper, section 5.1). The replicas of a cluster share a key and have
//! clocks of their own, so here it is one per slot, which only one replica uses.

use super::noise::Timestamp;
use std::collections::BTreeMap;

/// Most slots of one peer: five times its confirmed and unconfirmed sessions; 40 KB.
///
/// A client that tries to discover a lost replica opens a session a second, and uses up these slots in 17 minutes.
const SLOTS_MAX: usize = 1_024;

/// The newest timestamps of one peer.
#[derive(Debug, Default)]
pub(super) struct Timestamps {
    by_slot: BTreeMap<u32, Timestamp>,
    /// The newest timestamp of a slot that was forgotten for want of room: a slot that is not known must be newer. So
    /// a replica whose clock is behind its siblings' by more than the time in which they used [`SLOTS_MAX`] slots is not
    /// served before its clock has passed this.
    forgotten: Timestamp,
}

impl Timestamps {
    /// Takes the timestamp of an initiation for `slot` in; returns whether it is newer than all before.
    pub(super) fn take(&mut self, slot: u32, timestamp: Timestamp) -> bool {
        let newest = self.by_slot.get(&slot).unwrap_or(&self.forgotten);
        if timestamp <= *newest {
            return false;
        }
        self.by_slot.insert(slot, timestamp);

        if self.by_slot.len() > SLOTS_MAX {
            let oldest = self.by_slot.iter().min_by_key(|(_, timestamp)| **timestamp);
            if let Some((slot, timestamp)) = oldest.map(|(slot, timestamp)| (*slot, *timestamp)) {
                self.by_slot.remove(&slot);
                self.forgotten = timestamp;
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
    fn slots_have_clocks_of_their_own() {
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
