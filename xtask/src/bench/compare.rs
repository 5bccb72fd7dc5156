//! Compares two stored results, and finds numbers that changed by more than their spread.
//!
//! The spread of a number is its range over the rounds of a run, from minimum to maximum. A number
//! has changed by more than its spread if the ranges of both results do not overlap.

use super::metric::{Better, METRICS, Metric, Sample, Tunnel, Underlay};
use super::results::{REFERENCE, by_round};
use super::stats::Summary;
use super::table::number;
use crate::console::{BAD, FAINT, GOOD, TITLE};
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum as _};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// The earlier result, such as `bench/results/2026-11-23-9024d38c02.json`.
    #[arg(value_name = "A")]
    before: PathBuf,

    /// The later result.
    #[arg(value_name = "B")]
    after: PathBuf,
}

/// Reads both results and returns a table of the changes.
///
/// # Errors
///
/// Returns an error that names the file, if a file cannot be read or is not a result of the bench.
pub(super) fn run(options: &Compare) -> Result<String> {
    let before = Kept::read(&options.before)?;
    let after = Kept::read(&options.after)?;
    let changes = changes(&before.samples, &after.samples);

    Ok(render(&before, &after, &changes))
}

/// A stored result, reduced to the fields that the comparison needs.
#[derive(Debug, Deserialize)]
struct Kept {
    date: String,
    commit: String,
    #[serde(deserialize_with = "of_known_tunnels")]
    samples: Vec<Sample>,
}

/// Deserializes the samples, and skips samples of tunnels that the bench no longer measures.
fn of_known_tunnels<'de, D: Deserializer<'de>>(results: D) -> Result<Vec<Sample>, D::Error> {
    let samples = Vec::<Value>::deserialize(results)?.into_iter();
    let known = samples.filter(|sample| {
        let tunnel = sample["tunnel"].as_str();
        tunnel.is_none_or(|name| Tunnel::from_str(name, false).is_ok())
    });
    let read = known.map(|sample| Sample::deserialize(sample).map_err(D::Error::custom));

    read.collect()
}

impl Kept {
    fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {shown}"))?;

        serde_json::from_str(&text).with_context(|| format!("{shown} is not a result of the bench"))
    }
}

/// The values of one number in the earlier and in the later result.
#[derive(Clone, Copy, Debug)]
struct Change {
    tunnel: Tunnel,
    underlay: Underlay,
    metric: Metric,
    /// Whether the number is a ratio to the reference tunnel. Drift of a shared machine changes
    /// ratios less than absolute numbers.
    is_ratio: bool,
    before: Summary,
    after: Summary,
    is_beyond_spread: bool,
}

impl Change {
    /// Returns the later median divided by the earlier median; `None` if the earlier median is
    /// zero.
    fn factor(&self) -> Option<f64> {
        (self.before.median > 0.0).then(|| self.after.median / self.before.median)
    }

    fn is_better(&self) -> bool {
        match self.metric.better {
            Better::Higher => self.after.median > self.before.median,
            Better::Lower => self.after.median < self.before.median,
        }
    }
}

/// Minimum relative change that counts if a result has only a single value of a number, and
/// therefore no spread. The drift of a shared machine can cause a smaller change.
const NOISE: f64 = 0.12;

/// Compares all numbers that occur in both results.
fn changes(before: &[Sample], after: &[Sample]) -> Vec<Change> {
    let mut changes = Vec::new();
    for &underlay in Underlay::value_variants() {
        for metric in METRICS {
            for &tunnel in Tunnel::value_variants() {
                changes.extend(change(before, after, underlay, metric, tunnel));
            }
        }
    }
    changes
}

fn change(
    before: &[Sample],
    after: &[Sample],
    underlay: Underlay,
    metric: Metric,
    tunnel: Tunnel,
) -> Option<Change> {
    let both = |of: &dyn Fn(&[Sample]) -> Vec<f64>| {
        let (before, after) = (of(before), of(after));
        let times = before.len().min(after.len());
        Some((Summary::of(before)?, Summary::of(after)?, times))
    };
    let absolute = |samples: &[Sample]| -> Vec<f64> {
        let values: BTreeMap<u32, f64> = by_round(samples, underlay, metric, tunnel);
        values.into_values().collect()
    };
    let ratios = |samples: &[Sample]| -> Vec<f64> {
        let reference = by_round(samples, underlay, metric, REFERENCE);
        by_round(samples, underlay, metric, tunnel)
            .into_iter()
            .filter_map(|(round, ours)| {
                let theirs = *reference.get(&round)?;
                (theirs > 0.0).then_some(ours / theirs)
            })
            .collect()
    };

    let ratio = (tunnel != REFERENCE).then(|| both(&ratios)).flatten();
    let is_ratio = ratio.is_some();
    let (before, after, times) = ratio.or_else(|| both(&absolute))?;
    let is_apart = after.min > before.max || after.max < before.min;
    let is_large = (after.median - before.median).abs() > NOISE * before.median.abs();
    Some(Change {
        tunnel,
        underlay,
        metric,
        is_ratio,
        before,
        after,
        is_beyond_spread: is_apart && (times > 1 || is_large),
    })
}

fn render(before: &Kept, after: &Kept, changes: &[Change]) -> String {
    let (changed, same): (Vec<&Change>, Vec<&Change>) =
        changes.iter().partition(|change| change.is_beyond_spread);
    // Writing to a string cannot fail, so the results of `writeln!` are ignored.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "A {} of {}, B {} of {}: {} of {} numbers changed beyond their spread",
        before.commit,
        before.date,
        after.commit,
        after.date,
        changed.len(),
        changes.len()
    );
    if changed.is_empty() {
        return text;
    }

    let _ = writeln!(
        text,
        "{TITLE}{:<20}{:<7}{:<34}{:<13}{:>22}{:>22}{:>8}{TITLE:#}",
        "tunnel", "over", "", "unit", "A", "B", "B/A"
    );
    for change in changed {
        let style = if change.is_better() { GOOD } else { BAD };
        let unit = if change.is_ratio {
            format!("x {}", REFERENCE.name())
        } else {
            change.metric.unit.to_owned()
        };
        let _ = writeln!(
            text,
            "{:<20}{:<7}{:<34}{:<13}{:>22}{:>22}{style}{:>8}{style:#}",
            change.tunnel.name(),
            change.underlay.name(),
            format!(
                "{}: {}",
                change.metric.measurement.name(),
                change.metric.title.trim()
            ),
            unit,
            range(&change.before),
            range(&change.after),
            change.factor().map_or_else(|| "-".to_owned(), number),
        );
    }
    let _ = writeln!(
        text,
        "{FAINT}{} numbers stayed within their spread{FAINT:#}",
        same.len()
    );
    text
}

fn range(summary: &Summary) -> String {
    format!(
        "{} ({}-{})",
        number(summary.median),
        number(summary.min),
        number(summary.max)
    )
}

#[cfg(test)]
mod tests {
    use super::super::metric::{self, Measurement};
    use super::super::results::tests::{gbps, sample};
    use super::*;

    #[test]
    fn overlapping_ranges_are_no_change() {
        let before = [gbps(1, Tunnel::Fabric, 3.0), gbps(2, Tunnel::Fabric, 4.0)];
        let after = [gbps(1, Tunnel::Fabric, 3.9), gbps(2, Tunnel::Fabric, 5.0)];

        assert_eq!(beyond(&before, &after), 0);
    }

    #[test]
    fn disjoint_ranges_are_a_change() {
        let before = [gbps(1, Tunnel::Fabric, 3.0), gbps(2, Tunnel::Fabric, 3.2)];
        let after = [gbps(1, Tunnel::Fabric, 3.3), gbps(2, Tunnel::Fabric, 3.5)];

        assert_eq!(beyond(&before, &after), 1);
        assert_eq!(beyond(&after, &before), 1);
    }

    #[test]
    fn a_faster_machine_is_no_change_of_the_tunnel() {
        let before = [
            gbps(1, Tunnel::Fabric, 3.0),
            gbps(1, Tunnel::WireguardGo, 2.0),
        ];
        let after = [
            gbps(1, Tunnel::Fabric, 6.0),
            gbps(1, Tunnel::WireguardGo, 4.0),
        ];

        let changes = changes(&before, &after);

        let of = |tunnel| changes.iter().find(|it| it.tunnel == tunnel).unwrap();
        assert!(of(Tunnel::Fabric).is_ratio && !of(Tunnel::Fabric).is_beyond_spread);
        assert!(of(Tunnel::WireguardGo).is_beyond_spread);
    }

    #[test]
    fn a_number_that_is_measured_once_must_change_by_more_than_noise() {
        let rss = |value| {
            let memory = Measurement::Memory;
            [sample(0, Tunnel::Fabric, memory, metric::RSS_CLIENT, value)]
        };

        assert_eq!(beyond(&rss(10.0), &rss(11.0)), 0);
        assert_eq!(beyond(&rss(10.0), &rss(12.0)), 1);
    }

    #[test]
    fn a_result_without_underlays_can_be_read() {
        let json = r#"{"date": "2026-11-21", "commit": "abc", "machine": {}, "samples": [
            {"round": 1, "tunnel": "wireguard-go", "measurement": "tcp-x1", "values": {"gbps": 2.5}}]}"#;

        let kept: Kept = serde_json::from_str(json).unwrap();

        assert_eq!(kept.samples[0].underlay, Underlay::Uso);
    }

    #[test]
    fn a_result_with_a_tunnel_that_is_no_longer_measured_can_be_read() {
        let result = |tunnel| {
            format!(
                r#"{{"date": "2026-11-23", "commit": "abc", "samples": [
                    {{"round": 1, "tunnel": "{tunnel}", "measurement": "tcp-x1", "values": {{}}}},
                    {{"round": 1, "tunnel": "gateway", "measurement": "tcp-x1", "values": {{}}}}]}}"#
            )
        };

        let kept: Kept = serde_json::from_str(&result("gateway-wireguard")).unwrap();
        let broken = result("gateway").replace("tcp-x1", "tcp-x5");

        assert_eq!(kept.samples.len(), 1);
        assert_eq!(kept.samples[0].tunnel, Tunnel::Gateway);
        assert!(serde_json::from_str::<Kept>(&broken).is_err());
    }

    #[test]
    fn only_changes_are_listed() {
        let kept = |value| Kept {
            date: "2026-11-22".into(),
            commit: "abc".into(),
            samples: vec![
                gbps(1, Tunnel::Fabric, value),
                sample(1, Tunnel::Fabric, Measurement::RttIdle, metric::P50, 100.0),
            ],
        };
        let (before, after) = (kept(2.0), kept(4.0));

        let text = render(&before, &after, &changes(&before.samples, &after.samples));

        let text = anstream::adapter::strip_str(&text).to_string();
        assert!(text.contains("1 of 2 numbers changed"), "{text}");
        assert!(text.contains("2.00") && !text.contains("RTT"), "{text}");
    }

    fn beyond(before: &[Sample], after: &[Sample]) -> usize {
        changes(before, after)
            .iter()
            .filter(|change| change.is_beyond_spread)
            .count()
    }
}
