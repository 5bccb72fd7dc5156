//! Delays before a request is repeated.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// A delay that doubles with each failure, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub min: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Backoff {
    /// Backoff of requests that are repeated until the server answers. Changes that were missed while
    /// it was away are so seen 8 s later at most, and a thousand nodes send a few hundred requests
    /// per second.
    pub const REQUEST: Self = Self {
        min: Duration::from_millis(400),
        max: Duration::from_secs(8),
    };

    /// Returns the delay after `failures` failures before the last one. `random` is from 0 to 1.
    pub fn delay(self, failures: u32, random: f64) -> Duration {
        let delay = self.min.saturating_mul(1 << failures.min(16));
        spread(delay.min(self.max), random)
    }
}

/// Spreads a delay over 75 to 125 %, so that processes that were disconnected together do not
/// return together. `random` is from 0 to 1.
pub fn spread(delay: Duration, random: f64) -> Duration {
    delay.mul_f64(0.75 + random.clamp(0.0, 1.0) / 2.0)
}

/// Returns a number from 0 to 1 that need not be secret.
pub fn random() -> f64 {
    let bits = RandomState::new().hash_one(()) >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_limit_and_are_spread() {
        let Backoff { min, max } = Backoff::REQUEST;
        assert_eq!(Backoff::REQUEST.delay(0, 0.5), min);
        assert_eq!(Backoff::REQUEST.delay(2, 0.5), min * 4);
        assert_eq!(Backoff::REQUEST.delay(40, 0.5), max);
        let second = Duration::from_secs(1);
        assert_eq!(spread(second, 0.0), Duration::from_millis(750));
        assert_eq!(spread(second, 1.0), Duration::from_millis(1250));
        assert!((0.0..=1.0).contains(&random()));
    }
}
