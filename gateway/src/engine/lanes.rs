//! Which lane of one gateway meets which lane of another.
//!
//! A gateway of several lanes has an engine for each, and they share nothing: a session lives
//! in one lane of either side, so its nonces and its replay window have one writer. All lanes
//! listen on one UDP port; the kernel hands a message to the lane that its index names, by the
//! lowest byte of the slot (see `shell::udp::lanes`): the initiator's own index in an
//! initiation, the receiver's in all others. So an initiator chooses the lane that answers,
//! once it knows how many there are, and a responder's own indices lead back to itself.
//!
//! ```text
//! lanes of the client   0   1          0      0   1   2
//!                       |   |        / | \    |   |  /
//! lanes of the server   0   1       0  1  2   0   1
//! ```
//!
//! As many sessions as the side with more lanes has lanes: every lane of either side is used.

use serde::Serialize;

/// The most lanes of one gateway.
pub(crate) const LANES_MAX: u8 = 16;

/// One of the lanes of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) struct LaneId {
    number: u8,
    of: u8,
}

impl LaneId {
    /// The lane of a gateway that has no other.
    pub(crate) const ONLY: Self = Self { number: 0, of: 1 };

    /// Returns the lane `number`, from 0 on, of a gateway that has `of` lanes; `None` if there
    /// is no such lane, or a gateway cannot have so many.
    pub(crate) fn new(number: u8, of: u8) -> Option<Self> {
        (number < of && of <= LANES_MAX).then_some(Self { number, of })
    }

    /// Returns all lanes of a gateway that has `of`, between 1 and [`LANES_MAX`].
    pub(crate) fn all(of: u8) -> impl Iterator<Item = Self> {
        (0..of).filter_map(move |number| Self::new(number, of))
    }

    /// Which it is, from 0 on.
    pub(crate) fn number(self) -> u8 {
        self.number
    }

    /// How many lanes its gateway has.
    pub(crate) fn of(self) -> u8 {
        self.of
    }

    /// The first lane, of however many: messages whose index has a slot of this kind come to it.
    pub(super) fn is_held_by_first(slot: u32) -> bool {
        slot & 0xff == 0
    }

    /// Whether it is the one that serves peers which have one session only.
    pub(crate) fn is_first(self) -> bool {
        self.number == 0
    }

    /// Whether messages whose index has this slot come to this lane.
    pub(crate) fn holds(self, slot: u32) -> bool {
        (slot & 0xff) % u32::from(self.of) == u32::from(self.number)
    }

    /// Whether this lane and one of another gateway are to have a session.
    pub(super) fn meets(self, other: Self) -> bool {
        let width = self.of.min(other.of);

        self.number % width == other.number % width
    }

    /// Returns a lane that this one is to meet, of a gateway that has as many lanes as that of
    /// `like`.
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
    fn every_lane_of_either_side_is_met_and_no_more_than_needed() {
        for (here, there) in (1..=LANES_MAX).flat_map(|a| (1..=LANES_MAX).map(move |b| (a, b))) {
            let pairs: Vec<_> = LaneId::all(here)
                .flat_map(|one| LaneId::all(there).map(move |other| (one, other)))
                .filter(|(one, other)| one.meets(*other))
                .collect();

            assert!(LaneId::all(here).all(|one| pairs.iter().any(|pair| pair.0 == one)));
            assert!(LaneId::all(there).all(|other| pairs.iter().any(|pair| pair.1 == other)));
            assert_eq!(pairs.len(), usize::from(here.max(there)));
            assert!(pairs.iter().all(|(one, other)| other.meets(*one)));
        }
    }

    #[test]
    fn a_counterpart_is_met() {
        for of in 1..=LANES_MAX {
            for like in 1..=LANES_MAX {
                let like = LaneId::new(0, like).unwrap();

                assert!(LaneId::all(of).all(|lane| lane.meets(lane.counterpart(like))));
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
