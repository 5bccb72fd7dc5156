//! The waits between attempts to watch.

use kube::runtime::utils::Backoff;
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

/// The first wait after a failure.
const MIN: Duration = Duration::from_millis(500);

/// The longest: so soon is what was missed seen after an API server has been away. A
/// thousand nodes that ask it again are then a few hundred requests a second.
const MAX: Duration = Duration::from_secs(8);

/// How long there must be no failure for the next one to be the first again.
const CALM: Duration = Duration::from_secs(30);

/// Waits that double, with a random part, so that nodes do not ask all at once.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
    /// When the last wait ended.
    ended: Option<Instant>,
}

impl Pauses {
    pub(crate) const fn new() -> Self {
        Self {
            next: MIN,
            ended: None,
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = spread(self.next);
        self.next = (self.next * 2).min(MAX);
        self.ended = Some(Instant::now() + pause);

        Some(pause)
    }
}

impl Backoff for Pauses {
    /// Called at every event, even the one that only announces an attempt.
    fn reset(&mut self) {
        if self.ended.is_some_and(|ended| ended.elapsed() > CALM) {
            *self = Self::new();
        }
    }
}

/// Adds up to a half, by chance.
pub(crate) fn spread(pause: Duration) -> Duration {
    // Keyed with the system's random numbers.
    let [low, ..] = RandomState::new().hash_one(()).to_be_bytes();

    pause + pause * u32::from(low) / 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_limit_though_attempts_are_announced() {
        let mut pauses = Pauses::new();

        let mut waits = Vec::new();
        for _ in 0..10 {
            pauses.reset();
            waits.extend(pauses.next());
        }

        assert!(waits[0] < MIN * 2, "{waits:?}");
        assert!(waits[3] >= MIN * 8, "{waits:?}");
        let longest = MAX + MAX / 2;
        assert!(waits[9] >= MAX && waits[9] <= longest, "{waits:?}");
    }
}
