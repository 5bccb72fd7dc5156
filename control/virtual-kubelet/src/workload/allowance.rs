//! Limits of how often something is done for one pod.

use std::time::{Duration, Instant};

/// A rate: one action per interval, and a number of actions at once after a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) interval: Duration,
    pub(super) burst: u32,
}

/// The actions for one pod, by the generic cell rate algorithm: each takes an interval of time, which lies ahead by a burst at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowance {
    taken_until: Option<Instant>,
}

impl Allowance {
    /// Takes one action.
    ///
    /// # Errors
    ///
    /// Returns the time after which it can be taken, if there were too many.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let from = self.taken_until.map_or(now, |it| it.max(now));
        let until = from + rate.interval;
        let excess = (until - now).saturating_sub(rate.interval * rate.burst);
        if !excess.is_zero() {
            return Err(excess);
        }
        self.taken_until = Some(until);

        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_one_action_per_interval() {
        let rate = Rate {
            interval: Duration::from_secs(10),
            burst: 3,
        };
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut allowance = Allowance::default();
        let mut taken = Vec::new();
        for second in 0..35 {
            while allowance.take(rate, after(second)).is_ok() {
                taken.push(second);
            }
        }

        assert_eq!(taken, [0, 0, 0, 10, 20, 30]);
        let rest = allowance.take(rate, after(34)).unwrap_err();
        assert_eq!(rest, Duration::from_secs(6));
        let again = [(); 4].map(|()| allowance.take(rate, after(60)).is_ok());
        assert_eq!(again, [true, true, true, false]);
    }
}
