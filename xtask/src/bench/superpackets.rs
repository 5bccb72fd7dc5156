//! Histograms of the sizes of packets that gateways read from and write to their TAPs.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The number of packets in each size class, by the upper bound of the class in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(super) struct Histogram(pub(super) BTreeMap<u64, u64>);

impl Histogram {
    /// Parses a gateway's status, and returns the sizes of the packets that the gateway has read
    /// from its TAP.
    ///
    /// # Errors
    ///
    /// Returns an error if the status has no such counters.
    pub(super) fn read(status: &Value) -> Result<Self> {
        Self::of(status, "read")
    }

    /// Parses a gateway's status, and returns the sizes of the packets that the gateway has written
    /// to its TAP.
    ///
    /// # Errors
    ///
    /// Returns an error if the status has no such counters.
    pub(super) fn written(status: &Value) -> Result<Self> {
        Self::of(status, "written")
    }

    /// Sums the counters of all lanes in a gateway's status. A lane is a worker thread of the
    /// gateway.
    fn of(status: &Value, name: &str) -> Result<Self> {
        let mut sum = Self::default();
        for counter in counters(status, name) {
            let buckets = counter["buckets"].as_array().into_iter().flatten();
            for (place, count) in (0..).zip(buckets) {
                *sum.0.entry(1 << place).or_default() += count.as_u64().unwrap_or_default();
            }
        }

        (!sum.0.is_empty())
            .then_some(sum)
            .with_context(|| format!("the gateway's status lacks the sizes of packets {name}"))
    }

    /// Returns each size class as upper bound in bytes, percentage of all packets, and number of
    /// packets.
    pub(super) fn shares(&self) -> Vec<(u64, f64, u64)> {
        let all: u64 = self.0.values().sum();

        self.0
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(bound, count)| (*bound, 100.0 * *count as f64 / all as f64, *count))
            .collect()
    }

    /// Adds the packets of another gateway.
    pub(super) fn add(&mut self, other: &Self) {
        self.add_growth(&Self::default(), other);
    }

    fn add_growth(&mut self, before: &Self, after: &Self) {
        for (bound, count) in &after.0 {
            let before = before.0.get(bound).copied().unwrap_or_default();
            *self.0.entry(*bound).or_default() += count.saturating_sub(before);
        }
    }
}

/// Returns the counters of a name wherever they are in a gateway's status: those of all lanes together, or of each lane.
pub(super) fn counters<'a>(status: &'a Value, name: &str) -> Vec<&'a Value> {
    let nested: Vec<&Value> = match status {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(values) => values.iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let own = status.get(name).into_iter();
    let nested = nested.into_iter().flat_map(|value| counters(value, name));

    own.chain(nested).collect()
}

/// Sizes of the packets from the client to the server: read by the client's gateway, and written
/// by the server's gateway.
#[derive(Clone, Debug, Default)]
pub(super) struct SuperPackets([Histogram; 2]);

impl SuperPackets {
    /// Adds the difference between two readings of the gateways' histograms.
    pub(super) fn add_growth(&mut self, before: &[Histogram; 2], after: &[Histogram; 2]) {
        for (sum, (before, after)) in self.0.iter_mut().zip(before.iter().zip(after)) {
            sum.add_growth(before, after);
        }
    }

    /// Returns the non-empty histograms with their titles. `name` identifies tunnel and network.
    pub(super) fn into_named(self, name: &str) -> BTreeMap<String, Histogram> {
        let [read, written] = self.0;

        [
            ("read by the client's", read),
            ("written by the server's", written),
        ]
        .into_iter()
        .filter(|(_, histogram)| histogram.0.values().any(|count| *count > 0))
        .map(|(what, histogram)| (format!("{name}, TCP x1 forth: {what} gateway"), histogram))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_difference_of_two_readings_counts() {
        let mut sum = SuperPackets::default();
        let before = [histogram(&[(1500, 5)]), histogram(&[])];
        let after = [histogram(&[(1500, 6), (65536, 3)]), histogram(&[])];

        sum.add_growth(&before, &after);
        sum.add_growth(&after, &after);

        let named = sum.into_named("fabric, uso");
        assert_eq!(named.len(), 1);
        assert_eq!(
            named.values().next(),
            Some(&histogram(&[(1500, 1), (65536, 3)]))
        );
    }

    #[test]
    fn the_lanes_of_a_gateway_are_summed() {
        let lane = json!({
            "read": {"count": 3, "bytes": 5, "buckets": [1, 2]},
            "written": {"count": 0, "bytes": 0, "buckets": [0, 0]},
        });
        let status = json!({"replica": "a", "lanes": [lane.clone(), lane]});

        assert_eq!(
            Histogram::read(&status).unwrap(),
            histogram(&[(1, 2), (2, 4)])
        );
        assert!(Histogram::written(&status).is_ok());
    }

    #[test]
    fn a_status_without_sizes_is_an_error() {
        let error = Histogram::read(&json!({"peers": []})).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the gateway's status lacks the sizes of packets read"
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
