//! Limits the frames that one wake-up reads from the TAP.
//!
//! Without the limits, a fast sender could starve the other descriptors and the timers of the lane.

use crate::shell::lane::batching::SMALL_MAX;

/// Maximum number of frames longer than [`SMALL_MAX`], which are super-packets of up to 64 KiB.
const LARGE_FRAMES_MAX: usize = 16;

/// Maximum number of frames of any length; equal to the datagrams of two `UDP_SEGMENT` sends.
const FRAMES_MAX: usize = 128;

/// Maximum number of segments of all frames, whose encryption takes 0.4 to 1.8 ms.
///
/// The limit permits [`LARGE_FRAMES_MAX`] super-packets of 128 datagrams, Linux's maximum
/// (`UDP_MAX_SEGMENTS`). Without this limit, [`FRAMES_MAX`] small frames of
/// [`split::SEGMENTS_MAX`](crate::offload::split::SEGMENTS_MAX) segments would have 16 times as
/// many segments.
const SEGMENTS_MAX: usize = LARGE_FRAMES_MAX * 128;

/// Counters of the frames that the current wake-up has read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadBudget {
    frames: usize,
    large_frames: usize,
    segments: usize,
}

impl ReadBudget {
    /// Returns whether one of the limits is reached.
    pub(super) fn is_spent(&self) -> bool {
        self.frames >= FRAMES_MAX
            || self.large_frames >= LARGE_FRAMES_MAX
            || self.segments >= SEGMENTS_MAX
    }

    /// Counts a frame of `len` bytes that was sent as `segments` packets.
    pub(super) fn spend(&mut self, len: usize, segments: usize) {
        self.frames += 1;
        self.large_frames += usize::from(len > SMALL_MAX);
        self.segments += segments;
    }

    /// Returns whether the wake-up has read no frame, or a single small frame.
    pub(super) fn is_at_most_one_small_frame(&self) -> bool {
        self.frames <= 1 && self.large_frames == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::split;

    /// Reads equal frames until the budget is spent; returns the numbers of frames and segments.
    fn spent(len: usize, segments: usize) -> (usize, usize) {
        let mut budget = ReadBudget::default();
        while !budget.is_spent() {
            budget.spend(len, segments);
        }
        (budget.frames, budget.segments)
    }

    #[test]
    fn ordinary_traffic_is_limited_by_frames() {
        assert_eq!(spent(92, 1), (FRAMES_MAX, FRAMES_MAX));
        assert_eq!(spent(65_000, 48), (LARGE_FRAMES_MAX, LARGE_FRAMES_MAX * 48));
        // A TCP super-packet with an MSS of 536 bytes, then a UDP super-packet of 128 datagrams.
        assert_eq!(
            spent(65_000, 122),
            (LARGE_FRAMES_MAX, LARGE_FRAMES_MAX * 122)
        );
        assert_eq!(
            spent(65_000, 128),
            (LARGE_FRAMES_MAX, LARGE_FRAMES_MAX * 128)
        );
    }

    #[test]
    fn tiny_segments_are_limited_in_total() {
        for len in [SMALL_MAX, 65_000] {
            let (_, segments) = spent(len, split::SEGMENTS_MAX);

            assert!(segments < SEGMENTS_MAX + split::SEGMENTS_MAX, "{segments}");
        }
    }

    #[test]
    fn one_small_frame_is_neither_two_nor_a_super_packet() {
        let mut budget = ReadBudget::default();
        assert!(budget.is_at_most_one_small_frame());

        budget.spend(SMALL_MAX, 1);
        assert!(budget.is_at_most_one_small_frame());
        budget.spend(SMALL_MAX, 1);
        assert!(!budget.is_at_most_one_small_frame());

        let mut budget = ReadBudget::default();
        budget.spend(SMALL_MAX + 1, 1);
        assert!(!budget.is_at_most_one_small_frame());
    }
}
