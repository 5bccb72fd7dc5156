//! Whether a descriptor brings packets one by one.
//!
//! To look for a second packet costs a system call before the first one goes on, and it is mostly in vain
//! while traffic is light. The descriptor stays ready if there is one, so nothing is lost by not looking.

use std::time::{Duration, Instant};

/// After so many wake-ups in a row with one small packet each, another one is expected.
const ENOUGH: u8 = 16;

/// Wake-ups closer than that are those of a burst.
const APART: Duration = Duration::from_micros(100);

/// A packet longer than this, or several received as one, is part of a bulk transfer.
pub(super) const SMALL_MAX: usize = 2048;

/// What a descriptor has brought of late.
#[derive(Debug)]
pub(super) struct Singles {
    row: u8,
    last: Instant,
}

impl Singles {
    /// Starts with a descriptor that may bring anything.
    pub(super) fn new(now: Instant) -> Self {
        Self { row: 0, last: now }
    }

    /// Learns of a wake-up; returns whether one packet is all that it is for, most likely.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.last) < APART {
            self.row = 0;
        }
        self.last = now;
        self.row >= ENOUGH
    }

    /// Learns what the wake-up was for.
    pub(super) fn end(&mut self, was_single: bool) {
        self.row = if was_single {
            self.row.saturating_add(1).min(ENOUGH)
        } else {
            0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(2);

    fn calm(now: &mut Instant) -> Singles {
        let mut singles = Singles::new(*now);
        for _ in 0..ENOUGH {
            *now += LATER;
            assert!(!singles.begin(*now), "it is not known yet");
            singles.end(true);
        }
        singles
    }

    #[test]
    fn a_second_packet_is_not_looked_for_where_none_was_found_before() {
        let mut now = Instant::now();
        let mut singles = calm(&mut now);

        for _ in 0..1000 {
            now += LATER;
            assert!(singles.begin(now));
            singles.end(true);
        }
    }

    #[test]
    fn a_burst_is_looked_for_from_its_second_packet_on() {
        let mut now = Instant::now();
        let mut singles = calm(&mut now);

        now += LATER;
        assert!(singles.begin(now));
        singles.end(true);
        now += APART / 2;
        assert!(!singles.begin(now));
        singles.end(false);
        now += LATER;
        assert!(!singles.begin(now), "as long as bursts were seen of late");
    }

    #[test]
    fn a_bulk_transfer_is_none() {
        let mut now = Instant::now();
        let mut singles = calm(&mut now);

        now += LATER;
        assert!(singles.begin(now));
        singles.end(false);
        now += LATER;
        assert!(!singles.begin(now));
    }
}
