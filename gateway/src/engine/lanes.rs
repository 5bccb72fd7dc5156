//! Pairs the lanes of two gateways.
//!
//! A lane is a worker thread of a gateway, with its own engine. Lanes share no state: a session
//! belongs to one lane on each side, so its nonces and its replay window have one writer.
//!
//! All lanes listen on one UDP port. The kernel delivers a message to the lane that the lowest byte
//! of the slot selects (`shell/udp/lanes.rs`). An initiation carries this slot in its sender index,
//! and all other messages carry it in their receiver index. An initiator that knows the number of
//! remote lanes chooses a slot that selects the responding lane. A responder chooses slots that
//! select its own lane.
//!
//! ```text
//! lanes of the client   0   1          0      0   1   2
//!                       |   |        / | \    |   |  /
//! lanes of the server   0   1       0  1  2   0   1
//! ```
//!
//! The side with more lanes has one session per lane, so every lane of both sides is used.

use serde::Serialize;

/// Upper limit of lanes per gateway.
pub(crate) const LANES_MAX: u8 = 16;

/// Identifies a lane by its number and the number of lanes of its gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct LaneId {
    number: u8,
    of: u8,
}

impl LaneId {
    /// The lane of a gateway with one lane.
    pub(crate) const ONLY: Self = Self { number: 0, of: 1 };

    /// Returns the lane `number`, counted from 0, of a gateway with `of` lanes. Returns `None` if
    /// `number` is not below `of`, or `of` exceeds [`LANES_MAX`].
    pub(crate) fn new(number: u8, of: u8) -> Option<Self> {
        (number < of && of <= LANES_MAX).then_some(Self { number, of })
    }

    /// Returns all lanes of a gateway with `of` lanes, between 1 and [`LANES_MAX`].
    pub(crate) fn all(of: u8) -> impl Iterator<Item = Self> {
        (0..of).filter_map(move |number| Self::new(number, of))
    }

    /// Returns the number of the lane, counted from 0.
    pub(crate) fn number(self) -> u8 {
        self.number
    }

    /// Returns the number of lanes of the lane's gateway.
    pub(crate) fn of(self) -> u8 {
        self.of
    }

    /// Returns whether messages with this slot are delivered to the first lane, for any number of
    /// lanes.
    pub(super) fn is_held_by_first(slot: u32) -> bool {
        slot & 0xff == 0
    }

    /// Returns whether this is the first lane, which has the sessions of single-session peers.
    pub(crate) fn is_first(self) -> bool {
        self.number == 0
    }

    /// Returns whether messages with this slot are delivered to this lane.
    pub(crate) fn holds(self, slot: u32) -> bool {
        (slot & 0xff) % u32::from(self.of) == u32::from(self.number)
    }

    /// Returns whether this lane must have a session with the lane `other` of a remote gateway.
    pub(super) fn pairs_with(self, other: Self) -> bool {
        let width = self.of.min(other.of);

        self.number % width == other.number % width
    }

    /// Returns a remote lane that pairs with this one. `like` is any lane of the remote gateway.
    pub(super) fn counterpart(self, like: Self) -> Self {
        Self {
            number: self.number % like.of,
            of: like.of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_has_a_pair_and_there_are_no_more_pairs_than_needed() {
        for (here, there) in (1..=LANES_MAX).flat_map(|a| (1..=LANES_MAX).map(move |b| (a, b))) {
            let pairs: Vec<_> = LaneId::all(here)
                .flat_map(|one| LaneId::all(there).map(move |other| (one, other)))
                .filter(|(one, other)| one.pairs_with(*other))
                .collect();

            assert!(LaneId::all(here).all(|one| pairs.iter().any(|pair| pair.0 == one)));
            assert!(LaneId::all(there).all(|other| pairs.iter().any(|pair| pair.1 == other)));
            assert_eq!(pairs.len(), usize::from(here.max(there)));
            assert!(pairs.iter().all(|(one, other)| other.pairs_with(*one)));
        }
    }

    #[test]
    fn a_counterpart_pairs() {
        for of in 1..=LANES_MAX {
            for like in 1..=LANES_MAX {
                let like = LaneId::new(0, like).unwrap();

                assert!(LaneId::all(of).all(|lane| lane.pairs_with(lane.counterpart(like))));
            }
        }
    }

    #[test]
    fn every_slot_is_held_by_one_lane() {
        for of in 1..=LANES_MAX {
            for slot in (0..1 << 12).chain([0x00ff_ffff]) {
                let holding = LaneId::all(of).filter(|lane| lane.holds(slot)).count();
                assert_eq!(holding, 1, "slot {slot} of {of} lanes");
            }
        }
    }

    #[test]
    fn there_is_no_lane_beyond_the_last() {
        assert_eq!(LaneId::new(0, 1), Some(LaneId::ONLY));
        assert_eq!(LaneId::new(2, 2), None);
        assert_eq!(LaneId::new(0, 0), None);
        assert_eq!(LaneId::new(0, LANES_MAX + 1), None);
    }
}
