//! Decides whether a wake-up reads more than one packet from a descriptor.
//!
//! The attempt to read a second packet costs a system call and delays the first packet. Under light
//! traffic a second packet is rare, so a wake-up reads only one packet. Epoll is level-triggered,
//! so an unread packet causes another wake-up.

use std::time::{Duration, Instant};

/// Number of consecutive wake-ups with at most one small packet, after which traffic counts as
/// light.
const SMALL_READS_MIN: u8 = 16;

/// If the interval between two wake-ups is shorter than this value, they belong to a burst.
const BURST_GAP: Duration = Duration::from_micros(100);

/// Maximum length of a frame or datagram that counts as small, in bytes.
pub(super) const SMALL_MAX: usize = 2048;

/// The history of the wake-ups of a descriptor.
#[derive(Debug)]
pub(super) struct Batching {
    /// Number of consecutive wake-ups with at most one small packet, up to [`SMALL_READS_MIN`].
    small_reads: u8,
    /// Time of the last wake-up.
    last: Instant,
}

impl Batching {
    /// Creates an empty history, with which the first wake-ups read in batches.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            small_reads: 0,
            last: now,
        }
    }

    /// Records the start of a wake-up; returns whether it should read a single packet only.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) < BURST_GAP {
            self.small_reads = 0;
        }
        self.last = now;
        self.small_reads >= SMALL_READS_MIN
    }

    /// Records the end of a wake-up, and whether it read at most one small packet.
    pub(super) fn end(&mut self, was_single: bool) {
        self.small_reads = if was_single {
            self.small_reads.saturating_add(1).min(SMALL_READS_MIN)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(2);

    /// Returns a history with [`SMALL_READS_MIN`] wake-ups of one small packet each.
    fn light_traffic(now: &mut Instant) -> Batching {
        let mut batching = Batching::new(*now);
        for _ in 0..SMALL_READS_MIN {
            *now += LATER;
            assert!(!batching.begin(*now), "not enough single packets yet");
            batching.end(true);
        }
        batching
    }

    #[test]
    fn light_traffic_is_read_one_packet_at_a_time() {
        let mut now = Instant::now();
        let mut batching = light_traffic(&mut now);

        for _ in 0..1000 {
            now += LATER;
            assert!(batching.begin(now));
            batching.end(true);
        }
    }

    #[test]
    fn a_burst_is_read_in_batches_from_its_second_wake_up_on() {
        let mut now = Instant::now();
        let mut batching = light_traffic(&mut now);

        now += LATER;
        assert!(batching.begin(now));
        batching.end(true);
        now += BURST_GAP / 2;
        assert!(!batching.begin(now));
        batching.end(false);
        now += LATER;
        assert!(!batching.begin(now), "the last wake-up was part of a burst");
    }

    #[test]
    fn bulk_traffic_is_read_in_batches() {
        let mut now = Instant::now();
        let mut batching = light_traffic(&mut now);

        now += LATER;
        assert!(batching.begin(now));
        batching.end(false);
        now += LATER;
        assert!(!batching.begin(now));
    }
}
