//! The result of a run.

use super::PURCHASE;
use super::http::Exchange;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

/// The maximum number of distinct failures in a report. Further failures are only counted.
const FAILURES_MAX: usize = 10;

/// Latencies and failures of all requests.
#[derive(Debug, Default)]
pub(super) struct Report {
    latencies: Vec<Duration>,
    failed: usize,
    failures: BTreeMap<String, usize>,
    purchases: usize,
}

impl Report {
    /// Adds the requests of one purchase.
    pub(super) fn add(&mut self, exchanges: Vec<Exchange>) {
        let before = self.latencies.len();
        for exchange in exchanges {
            match exchange {
                Ok(latency) => self.latencies.push(latency),
                Err(cause) => {
                    self.failed += 1;
                    if self.failures.len() < FAILURES_MAX || self.failures.contains_key(&cause) {
                        *self.failures.entry(cause).or_default() += 1;
                    }
                }
            }
        }
        if self.latencies.len() - before == PURCHASE.len() {
            self.purchases += 1;
        }
    }

    /// Returns the number of failed requests.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Returns the number of complete purchases.
    pub(super) fn purchases(&self) -> usize {
        self.purchases
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let millis = |percent| percentile(&sorted, percent).as_secs_f64() * 1e3;
        writeln!(
            f,
            "requests={} failed={} purchases={} p50={:.1}ms p99={:.1}ms",
            self.latencies.len() + self.failed,
            self.failed,
            self.purchases,
            millis(50),
            millis(99)
        )?;
        for (cause, count) in &self.failures {
            writeln!(f, "failed {count}: {cause}")?;
        }

        Ok(())
    }
}

/// Returns the nearest-rank percentile, which is zero without latencies.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);

    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_latencies_of_requests() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();

        assert_eq!(percentile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(percentile(&sorted[..1], 50), Duration::from_millis(1));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn only_purchases_without_failures_are_complete() {
        let mut report = Report::default();

        report.add(vec![Ok(Duration::from_millis(2)); PURCHASE.len()]);
        report.add(vec![
            Ok(Duration::from_millis(4)),
            Err("refused".to_owned()),
        ]);

        assert_eq!(
            report.to_string(),
            "requests=8 failed=1 purchases=1 p50=2.0ms p99=4.0ms\nfailed 1: refused\n"
        );
    }
}
