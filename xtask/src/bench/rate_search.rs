//! Searches for the highest rate of datagrams that a tunnel carries.
//!
//! The caller sends datagrams at the rate that [`Search::rate`] returns, and reports whether the
//! tunnel carried them. First the rate is multiplied or divided by [`STEP`] until the tunnel
//! carries one rate and does not carry the next rate. Then the interval between the two rates is
//! bisected on a logarithmic scale.

/// The first rate, in datagrams per second. Most tunnels carry this rate.
const START: f64 = 20_000.0;
/// The factor between successive rates before the bisection.
const STEP: f64 = 1.6;
/// The number of bisections. The last interval is 6 % wide, because 1.6 to the power of 1/8 is
/// 1.06.
const HALVINGS: u32 = 3;
/// The highest rate to try, in datagrams per second. The sender cannot exceed it.
const RATE_MAX: f64 = 2e6;
/// The lowest rate to try, in datagrams per second. The search ends here if the tunnel carries no
/// datagrams.
const RATE_MIN: f64 = 100.0;

/// The state of a search, which begins with the default value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    carried: Option<f64>,
    refused: Option<f64>,
    halvings: u32,
}

impl Search {
    /// Returns the rate to try next, in datagrams per second; `None` if the search has ended.
    pub(super) fn rate(&self) -> Option<f64> {
        match (self.carried, self.refused) {
            (None, None) => Some(START),
            (Some(carried), None) => Some(carried * STEP).filter(|rate| *rate <= RATE_MAX),
            (None, Some(refused)) => Some(refused / STEP).filter(|rate| *rate >= RATE_MIN),
            (Some(carried), Some(refused)) => {
                (self.halvings < HALVINGS).then(|| (carried * refused).sqrt())
            }
        }
    }

    /// Records whether the tunnel carried `rate`.
    pub(super) fn handle(&mut self, rate: f64, is_carried: bool) {
        if self.carried.is_some() && self.refused.is_some() {
            self.halvings += 1;
        }
        if is_carried {
            self.carried = Some(rate);
        } else {
            self.refused = Some(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_found_from_below_and_from_above() {
        for limit in [300.0, 15_000.0, 38_000.0, 150_000.0, 900_000.0] {
            let found = search(limit);

            assert!(found <= limit && found > limit * 0.94, "{limit}: {found}");
        }
    }

    #[test]
    fn a_tunnel_that_carries_no_rate_or_every_rate_ends_the_search() {
        assert_eq!(search(0.0), 0.0);
        assert!(search(f64::INFINITY) > RATE_MAX / STEP);
    }

    fn search(limit: f64) -> f64 {
        let mut search = Search::default();
        let mut best: f64 = 0.0;
        let mut tries = 0;
        while let Some(rate) = search.rate() {
            if rate <= limit {
                best = best.max(rate);
            }
            search.handle(rate, rate <= limit);
            tries += 1;
            assert!(tries < 20, "the search ends");
        }
        best
    }
}
