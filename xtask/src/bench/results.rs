//! The result of a run: all samples and their summary.

use super::metric::{METRICS, Measurement, Metric, Sample, Tunnel, Underlay};
use super::setting::Checkout;
use super::stats::Summary;
use super::superpackets::Histogram;
use super::targets::Verdict;
use clap::ValueEnum as _;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result of a run, in the JSON format of `bench/results`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    /// Machine, versions and options of the run.
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// One row for each metric and network that was measured.
    pub(super) summary: Vec<Row>,
    /// One verdict for each target whose number was measured.
    pub(super) targets: Vec<Verdict>,
    /// Histograms of the packet sizes at the gateways' TAPs during the TCP x1 measurements, by a
    /// title that names tunnel, network and gateway.
    pub(super) super_packets: BTreeMap<String, Histogram>,
    /// All samples, in chronological order.
    pub(super) samples: Vec<Sample>,
}

/// Machine, versions and options of a run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setting {
    #[serde(flatten)]
    pub(super) checkout: Checkout,
    /// Versions of the measuring tools and of the other tunnels.
    pub(super) versions: BTreeMap<String, String>,
    pub(super) rounds: u32,
    /// The duration of one measurement, in seconds.
    pub(super) seconds: u32,
}

/// The results of all tunnels for one metric over one network.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) underlay: Underlay,
    pub(super) measurement: Measurement,
    pub(super) key: &'static str,
    pub(super) unit: &'static str,
    /// Median and range of the number, by tunnel.
    pub(super) tunnels: BTreeMap<Tunnel, Summary>,
    /// Median and range of the ratios to [`REFERENCE`], by tunnel. Each ratio compares two samples
    /// of the same round.
    pub(super) ratios: BTreeMap<Tunnel, Summary>,
    /// The row of the table that this number fills.
    #[serde(skip)]
    pub(super) metric: Metric,
}

/// The tunnel to which all ratios refer.
pub(super) const REFERENCE: Tunnel = Tunnel::WireguardGo;

/// Returns a row for each number that was measured, ordered by network.
pub(super) fn rows(samples: &[Sample]) -> Vec<Row> {
    Underlay::value_variants()
        .iter()
        .flat_map(|&underlay| METRICS.iter().map(move |&metric| (underlay, metric)))
        .map(|(underlay, metric)| row(samples, underlay, metric))
        .filter(|row| !row.tunnels.is_empty())
        .collect()
}

fn row(samples: &[Sample], underlay: Underlay, metric: Metric) -> Row {
    let by_round = |tunnel| by_round(samples, underlay, metric, tunnel);
    let reference = by_round(REFERENCE);
    let mut tunnels = BTreeMap::new();
    let mut ratios = BTreeMap::new();
    for &tunnel in Tunnel::value_variants() {
        let ours = by_round(tunnel);
        if tunnel != REFERENCE {
            let ratio = ours.iter().filter_map(|(round, ours)| {
                let theirs = *reference.get(round)?;
                (theirs > 0.0).then_some(ours / theirs)
            });
            ratios.extend(Summary::of(ratio).map(|ratio| (tunnel, ratio)));
        }
        tunnels.extend(Summary::of(ours.into_values()).map(|summary| (tunnel, summary)));
    }

    Row {
        underlay,
        measurement: metric.measurement,
        key: metric.key,
        unit: metric.unit,
        tunnels,
        ratios,
        metric,
    }
}

/// Returns the numbers of one row and one tunnel, by round.
pub(super) fn by_round(
    samples: &[Sample],
    underlay: Underlay,
    metric: Metric,
    tunnel: Tunnel,
) -> BTreeMap<u32, f64> {
    samples
        .iter()
        .filter(|sample| {
            sample.underlay == underlay
                && sample.measurement == metric.measurement
                && sample.tunnel == tunnel
        })
        .filter_map(|sample| Some((sample.round, *sample.values.get(metric.key)?)))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::metric;
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        // In round 2 the machine is half as fast. The ratio stays the same.
        let samples = [
            gbps(1, Tunnel::Fabric, 4.0),
            gbps(1, Tunnel::WireguardGo, 2.0),
            gbps(2, Tunnel::Fabric, 2.0),
            gbps(2, Tunnel::WireguardGo, 1.0),
        ];

        let rows = rows(&samples);

        let ratio = rows[0].ratios[&Tunnel::Fabric];
        assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 2.0, 2.0));
        assert_eq!(rows[0].tunnels[&Tunnel::Fabric].median, 3.0);
    }

    #[test]
    fn an_unmeasured_number_has_no_row() {
        let rows = rows(&[gbps(1, Tunnel::Fabric, 4.0)]);

        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].key, metric::GBPS);
        assert_eq!(rows[0].tunnels.len(), 1);
        assert!(rows[0].ratios.is_empty());
    }

    #[test]
    fn a_zero_reference_gives_no_ratio() {
        let samples = [
            gbps(1, Tunnel::Fabric, 4.0),
            gbps(1, Tunnel::WireguardGo, 0.0),
        ];

        assert!(rows(&samples)[0].ratios.is_empty());
    }

    #[test]
    fn networks_are_not_mixed() {
        let samples = [
            gbps(1, Tunnel::Gateway, 4.0),
            Sample {
                underlay: Underlay::Nouso,
                ..gbps(1, Tunnel::WireguardGo, 2.0)
            },
        ];

        let rows = rows(&samples);

        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row.ratios.is_empty()));
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
            underlay: Underlay::Uso,
            measurement,
            values: BTreeMap::from([(key.to_owned(), value)]),
        }
    }
}
