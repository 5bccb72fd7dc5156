//! How large the packets are that the gateways read from and write to their TAPs.

use serde::Serialize;
use std::collections::BTreeMap;

/// Packets by size: the upper bound in bytes, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Histogram(pub(super) BTreeMap<u64, u64>);

impl Histogram {
    /// Each bound with its share of all packets, in percent, and its count.
    pub(super) fn shares(&self) -> Vec<(u64, f64, u64)> {
        let all: u64 = self.0.values().sum();

        self.0
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(bound, count)| (*bound, 100.0 * *count as f64 / all as f64, *count))
            .collect()
    }

    fn add_growth(&mut self, before: &Self, after: &Self) {
        for (bound, count) in &after.0 {
            let before = before.0.get(bound).copied().unwrap_or_default();
            *self.0.entry(*bound).or_default() += count.saturating_sub(before);
        }
    }
}

/// What passed both gateways, from the client to the server.
#[derive(Clone, Debug, Default)]
pub(super) struct SuperPackets([Histogram; 2]);

impl SuperPackets {
    /// Adds what was counted between two moments: by the client's gateway where it
    /// reads, by the server's where it writes.
    pub(super) fn add_growth(&mut self, before: &[Histogram; 2], after: &[Histogram; 2]) {
        for (sum, (before, after)) in self.0.iter_mut().zip(before.iter().zip(after)) {
            sum.add_growth(before, after);
        }
    }

    /// Returns what was counted, if anything was, by what people call it.
    pub(super) fn into_named(self) -> BTreeMap<&'static str, Histogram> {
        let [read, written] = self.0;

        [
            ("TCP x1 forth: read by the client's gateway", read),
            ("TCP x1 forth: written by the server's gateway", written),
        ]
        .into_iter()
        .filter(|(_, histogram)| histogram.0.values().any(|count| *count > 0))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_counted_in_between_counts() {
        let mut sum = SuperPackets::default();
        let before = [histogram(&[(1500, 5)]), histogram(&[])];
        let after = [histogram(&[(1500, 6), (65536, 3)]), histogram(&[])];

        sum.add_growth(&before, &after);
        sum.add_growth(&after, &after);

        let named = sum.into_named();
        assert_eq!(named.len(), 1);
        assert_eq!(
            named.values().next(),
            Some(&histogram(&[(1500, 1), (65536, 3)]))
        );
    }

    #[test]
    fn sizes_that_never_occurred_have_no_share() {
        let shares = histogram(&[(1500, 1), (9000, 0), (65536, 3)]).shares();

        assert_eq!(shares, [(1500, 25.0, 1), (65536, 75.0, 3)]);
    }

    fn histogram(counts: &[(u64, u64)]) -> Histogram {
        Histogram(counts.iter().copied().collect())
    }
}
