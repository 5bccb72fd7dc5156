//! Decides whether a wake-up reads on after its first packet.
//!
//! Looking for a second packet costs a system call before the first one is forwarded, and under light
//! traffic there seldom is one. Descriptors are level-triggered, so a packet that is not read now
//! causes the next wake-up.

use std::time::{Duration, Instant};

/// Consecutive wake-ups with one small packet each, after which the next is expected to be like them.
const SINGLES_MIN: u8 = 16;

/// Wake-ups closer together than this belong to a burst.
const BURST_GAP: Duration = Duration::from_micros(100);

/// Longest frame or datagram in bytes that counts as a single small packet.
pub(super) const SMALL_MAX: usize = 2048;

/// The recent wake-ups of a descriptor.
#[derive(Debug)]
pub(super) struct Batching {
    /// Consecutive wake-ups with one small packet each.
    singles: u8,
    last: Instant,
}

impl Batching {
    /// Starts with a descriptor of unknown traffic.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            singles: 0,
            last: now,
        }
    }

    /// Notes a wake-up; returns whether it is likely to bring a single packet.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) < BURST_GAP {
            self.singles = 0;
        }
        self.last = now;
        self.singles >= SINGLES_MIN
    }

    /// Notes whether the wake-up brought no more than one small packet.
    pub(super) fn end(&mut self, was_single: bool) {
        self.singles = if was_single {
            self.singles.saturating_add(1).min(SINGLES_MIN)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(2);

    /// After just enough single packets.
    fn light_traffic(now: &mut Instant) -> Batching {
        let mut batching = Batching::new(*now);
        for _ in 0..SINGLES_MIN {
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
