//! What a run found: every sample, and what the samples amount to.

use super::metric::{METRICS, Measurement, Metric, Sample, Tunnel};
use super::stats::Summary;
use super::superpackets::Histogram;
use super::thresholds::Verdict;
use serde::Serialize;
use std::collections::BTreeMap;

/// A run, as it is kept in `bench/results`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Where, when and how it was measured.
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// One row for each number of the table.
    pub(super) summary: Vec<Row>,
    /// What was asked of the numbers.
    pub(super) thresholds: Vec<Verdict>,
    /// Packets on the TAPs of the fabric's gateways during the TCP x1 rounds.
    pub(super) super_packets: BTreeMap<&'static str, Histogram>,
    /// Everything that was measured, in the order of time.
    pub(super) samples: Vec<Sample>,
}

/// Where, when and how it was measured.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    /// When the run began, in UTC.
    pub(super) date: String,
    /// The commit that was measured.
    pub(super) commit: String,
    /// Whether the checkout held changes beside the commit.
    pub(super) modified: bool,
    /// The command that repeats it.
    pub(super) command: String,
    /// Kernel, processor, cores, memory, congestion control.
    pub(super) machine: BTreeMap<&'static str, String>,
    /// Versions of the tools.
    pub(super) versions: BTreeMap<&'static str, String>,
    /// How often each measurement was repeated.
    pub(super) rounds: u32,
    /// How long one measurement took.
    pub(super) seconds: u32,
}

/// One number of both tunnels.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// The measurement that yields it.
    pub(super) measurement: Measurement,
    /// Its name.
    pub(super) key: &'static str,
    /// Its unit.
    pub(super) unit: &'static str,
    /// The fabric's.
    pub(super) fabric: Option<Summary>,
    /// The other's.
    pub(super) wireguard_go: Option<Summary>,
    /// The fabric's divided by the other's of the same round.
    pub(super) ratio: Option<Summary>,
    /// How to show it.
    #[serde(skip)]
    pub(super) metric: Metric,
}

/// Returns a row for each number that was measured.
pub(super) fn rows(samples: &[Sample]) -> Vec<Row> {
    METRICS
        .iter()
        .map(|&metric| row(samples, metric))
        .filter(|row| row.fabric.is_some() || row.wireguard_go.is_some())
        .collect()
}

fn row(samples: &[Sample], metric: Metric) -> Row {
    let fabric = by_round(samples, metric, Tunnel::Fabric);
    let wireguard_go = by_round(samples, metric, Tunnel::WireguardGo);
    let ratios = fabric.iter().filter_map(|(round, ours)| {
        let theirs = *wireguard_go.get(round)?;
        (theirs > 0.0).then_some(ours / theirs)
    });

    Row {
        measurement: metric.measurement,
        key: metric.key,
        unit: metric.unit,
        ratio: Summary::of(ratios),
        fabric: Summary::of(fabric.into_values()),
        wireguard_go: Summary::of(wireguard_go.into_values()),
        metric,
    }
}

fn by_round(samples: &[Sample], metric: Metric, tunnel: Tunnel) -> BTreeMap<u32, f64> {
    samples
        .iter()
        .filter(|sample| sample.measurement == metric.measurement && sample.tunnel == tunnel)
        .filter_map(|sample| Some((sample.round, *sample.values.get(metric.key)?)))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::metric;
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The machine slows down by half between the rounds; the ratio does not.
        let samples = [
            gbps(1, Tunnel::Fabric, 4.0),
            gbps(1, Tunnel::WireguardGo, 2.0),
            gbps(2, Tunnel::Fabric, 2.0),
            gbps(2, Tunnel::WireguardGo, 1.0),
        ];

        let rows = rows(&samples);

        let ratio = rows[0].ratio.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
        assert_eq!(rows[0].fabric.unwrap().median, 3.0);
    }

    #[test]
    fn what_was_not_measured_has_no_row() {
        let rows = rows(&[gbps(1, Tunnel::Fabric, 4.0)]);

        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].key, metric::GBPS);
        assert_eq!(rows[0].wireguard_go, None);
        assert_eq!(rows[0].ratio, None);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        let samples = [
            gbps(1, Tunnel::Fabric, 4.0),
            gbps(1, Tunnel::WireguardGo, 0.0),
        ];

        assert_eq!(rows(&samples)[0].ratio, None);
    }

    pub(in super::super) fn gbps(round: u32, tunnel: Tunnel, value: f64) -> Sample {
        sample(round, tunnel, Measurement::TcpX1, metric::GBPS, value)
    }

    pub(in super::super) fn sample(
        round: u32,
        tunnel: Tunnel,
        measurement: Measurement,
        key: &'static str,
        value: f64,
    ) -> Sample {
        Sample {
            round,
            tunnel,
            measurement,
            values: BTreeMap::from([(key, value)]),
        }
    }
}
