//! What one wake-up may read from the TAP, so that no sender keeps the lane from its other
//! descriptors and its timers.

use crate::shell::lane::batching::SMALL_MAX;

/// Frames longer than [`SMALL_MAX`]: super-packets of up to 64 KiB.
const LARGE_FRAMES_MAX: usize = 16;

/// Frames of any length: as many small packets as two runs of datagrams hold.
const FRAMES_MAX: usize = 128;

/// Segments of all frames: those of [`LARGE_FRAMES_MAX`] super-packets of 128 datagrams, which is
/// Linux's limit (`UDP_MAX_SEGMENTS`).
///
/// It takes 0.4 to 1.8 ms to seal them. Without the limit, [`FRAMES_MAX`] small frames could hold
/// [`SEGMENTS_MAX`](crate::offload::split::SEGMENTS_MAX) segments each, 16 times as many.
const SEGMENTS_MAX: usize = LARGE_FRAMES_MAX * 128;

/// The frames read since the wake-up began, against the limits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadBudget {
    frames: usize,
    large_frames: usize,
    segments: usize,
}

impl ReadBudget {
    /// Returns whether the other descriptors are due.
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

    /// Returns whether there was no more than one small frame.
    pub(super) fn is_at_most_one_small_frame(&self) -> bool {
        self.frames <= 1 && self.large_frames == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::split;

    /// Reads frames that are all alike until the budget is spent; returns frames and segments.
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
        // MSS of 536 bytes, and datagrams of the longest super-packet of Linux.
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
