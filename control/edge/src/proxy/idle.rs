//! When a connection has been without data for too long.

use super::Timeouts;
use std::time::Duration;
use tokio::time::Instant;

/// The last data of a connection, and whether one direction has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    timeouts: Timeouts,
    last_data: Instant,
    is_half_closed: bool,
}

impl Idle {
    pub(super) fn new(timeouts: Timeouts, now: Instant) -> Self {
        Self {
            timeouts,
            last_data: now,
            is_half_closed: false,
        }
    }

    /// Records that bytes were sent, in either direction.
    pub(super) fn handle_data(&mut self, now: Instant) {
        self.last_data = now;
    }

    /// Records that one side has ended its direction.
    pub(super) fn handle_end(&mut self, now: Instant) {
        self.last_data = now;
        self.is_half_closed = true;
    }

    /// Returns the time at which the connection must end unless there is data before.
    pub(super) fn deadline(&self) -> Instant {
        self.last_data + self.timeout()
    }

    pub(super) fn is_half_closed(&self) -> bool {
        self.is_half_closed
    }

    fn timeout(&self) -> Duration {
        if self.is_half_closed {
            self.timeouts.half_closed.min(self.timeouts.idle)
        } else {
            self.timeouts.idle
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_defers_the_deadline_and_an_end_shortens_it() {
        let timeouts = Timeouts::default();
        let start = Instant::now();
        let seconds = |count: u64| start + Duration::from_secs(count);

        let mut idle = Idle::new(timeouts, start);
        assert_eq!(idle.deadline(), start + timeouts.idle);
        idle.handle_data(seconds(7));
        assert_eq!(idle.deadline(), seconds(7) + timeouts.idle);
        idle.handle_end(seconds(9));
        assert_eq!(idle.deadline(), seconds(9) + timeouts.half_closed);
        idle.handle_data(seconds(11));
        assert_eq!(idle.deadline(), seconds(11) + timeouts.half_closed);
    }

    #[test]
    fn a_short_idle_timeout_also_applies_to_a_half_closed_connection() {
        let idle = Duration::from_secs(1);
        let timeouts = Timeouts {
            idle,
            ..Timeouts::default()
        };
        let start = Instant::now();

        let mut state = Idle::new(timeouts, start);
        state.handle_end(start);

        assert_eq!(state.deadline(), start + idle);
    }
}
