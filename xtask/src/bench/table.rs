//! Renders a result as a table for terminals.

use super::metric::{Better, Tunnel, Underlay};
use super::results::{Report, Row};
use super::stats::Summary;
use super::superpackets::Histogram;
use super::targets::{LimitKind, Verdict};
use crate::console::{BAD, FAINT, GOOD, TITLE};
use clap::ValueEnum as _;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Returns the whole table, with ANSI styles.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    for underlay in Underlay::value_variants() {
        let rows: Vec<&Row> = report
            .summary
            .iter()
            .filter(|row| row.underlay == *underlay)
            .collect();
        for secondaries in [false, true] {
            write_rows(&mut text, *underlay, &rows, secondaries);
        }
    }

    for (name, histogram) in &report.super_packets {
        let _ = write!(text, "\n{}", distribution(name, histogram));
    }
    for verdict in &report.targets {
        let (style, word) = if verdict.pass {
            (GOOD, "PASS")
        } else {
            (BAD, "FAIL")
        };
        let _ = write!(
            text,
            "\n{style}{word}{style:#} {} {}: {}",
            verdict.what,
            bound(verdict),
            number(verdict.measured)
        );
    }

    text
}

/// Writes the rows of one network, with a column for each tunnel. `secondaries` selects either the
/// [secondary](Tunnel::is_secondary) tunnels or all other tunnels.
fn write_rows(text: &mut String, underlay: Underlay, rows: &[&Row], secondaries: bool) {
    let tunnels: BTreeSet<Tunnel> = rows
        .iter()
        .flat_map(|row| row.tunnels.keys())
        .filter(|tunnel| tunnel.is_secondary() == secondaries)
        .copied()
        .collect();
    if tunnels.is_empty() {
        return;
    }
    // Writing to a string cannot fail, so the results of `write!` are ignored.
    let _ = write!(
        text,
        "{TITLE}{:<28}{:<12}",
        format!("{}, median (min-max)", underlay.name()),
        "unit"
    );
    for tunnel in &tunnels {
        let _ = write!(text, "{:>30}", heading(*tunnel));
    }
    let _ = writeln!(text, "{TITLE:#}");

    for row in rows {
        if !tunnels
            .iter()
            .any(|tunnel| row.tunnels.contains_key(tunnel))
        {
            continue;
        }
        let _ = write!(text, "{:<28}{:<12}", row.metric.title, row.unit);
        for tunnel in &tunnels {
            let _ = write!(text, "{:>22}", cell(row.tunnels.get(tunnel)));
            let ratio = row.ratios.get(tunnel).map(|ratio| ratio.median);
            let style = match (ratio, row.metric.better) {
                (None, Better::Higher | Better::Lower) => FAINT,
                (Some(ratio), Better::Higher) if ratio >= 1.0 => GOOD,
                (Some(ratio), Better::Lower) if ratio <= 1.0 => GOOD,
                (Some(_), Better::Higher | Better::Lower) => BAD,
            };
            let ratio = ratio.map_or_else(String::new, |ratio| format!("x{}", number(ratio)));
            let _ = write!(text, "{style}{ratio:>8}{style:#}");
        }
        text.push('\n');
    }
    text.push('\n');
}

/// Formats the limit of a target.
pub(super) fn bound(verdict: &Verdict) -> String {
    let limit = number(verdict.limit);
    match verdict.kind {
        LimitKind::RatioMin => format!("at least x{limit}"),
        LimitKind::RatioMax => format!("at most x{limit}"),
        LimitKind::Min => format!("at least {limit}"),
        LimitKind::Max => format!("at most {limit}"),
    }
}

fn heading(tunnel: Tunnel) -> String {
    if tunnel.is_path() {
        return format!("{}, pod to pod", tunnel.name());
    }
    tunnel.name()
}

/// Returns the line that the bench prints after a measurement.
pub(super) fn brief(row: &Row) -> String {
    let tunnels: Vec<String> = row
        .tunnels
        .iter()
        .map(|(tunnel, summary)| {
            let ratio = row.ratios.get(tunnel);
            let ratio = ratio.map_or_else(String::new, |it| format!(" (x{})", number(it.median)));
            format!("{} {}{ratio}", tunnel.name(), number(summary.median))
        })
        .collect();

    format!("{} {}", tunnels.join(", "), row.unit)
}

fn distribution(name: &str, histogram: &Histogram) -> String {
    let mut text = format!("{TITLE}{name}, bytes at most{TITLE:#}\n");
    for (bound, percent, count) in histogram.shares() {
        let _ = writeln!(text, "{bound:>8} {percent:>6.1} %  {count}");
    }

    text
}

fn cell(summary: Option<&Summary>) -> String {
    summary.map_or_else(String::new, |it| {
        format!(
            "{} ({}-{})",
            number(it.median),
            number(it.min),
            number(it.max)
        )
    })
}

/// Formats a number with two decimals below 10, with one decimal below 100, otherwise without
/// decimals.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::results::tests::gbps;
    use super::super::results::{Setting, rows};
    use super::super::setting::Checkout;
    use super::super::targets;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_row_has_medians_ranges_and_the_ratio() {
        let text = plain(&report());

        let row = text
            .lines()
            .find(|line| line.starts_with("TCP x1 forth"))
            .unwrap();
        let words: Vec<_> = row.split_whitespace().skip(3).collect();
        assert_eq!(
            words,
            [
                "Gb/s",
                "2.90",
                "(2.00-3.80)",
                "x1.45",
                "2.00",
                "(2.00-2.00)"
            ]
        );
    }

    #[test]
    fn super_packets_are_shares_of_all() {
        let text = plain(&report());

        assert!(text.contains("   65536   75.0 %  3\n"), "{text}");
    }

    #[test]
    fn targets_are_below_the_table() {
        let text = plain(&report());

        assert!(
            text.ends_with("\nPASS TCP x1, path at least x1.25: 1.45"),
            "{text}"
        );
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let numbers = [0.004, 9.994, 9.996, 38.04, 99.96, 332.4].map(number);

        assert_eq!(numbers, ["0.00", "9.99", "10.0", "38.0", "100", "332"]);
    }

    pub(in super::super) fn report() -> Report {
        let samples = vec![
            gbps(1, Tunnel::FabricDefaults, 3.8),
            gbps(1, Tunnel::WireguardGo, 2.0),
            gbps(2, Tunnel::FabricDefaults, 2.0),
            gbps(2, Tunnel::WireguardGo, 2.0),
        ];
        let summary = rows(&samples);
        let histogram = Histogram(BTreeMap::from([(1500, 1), (4096, 0), (65536, 3)]));

        Report {
            setting: Setting {
                checkout: Checkout {
                    date: "2026-11-21T12:00:00Z".into(),
                    commit: "abc".into(),
                    modified: false,
                    command: "cargo xtask bench".into(),
                    machine: BTreeMap::new(),
                },
                versions: BTreeMap::new(),
                rounds: 2,
                seconds: 1,
            },
            targets: targets::judge(&summary),
            summary,
            super_packets: BTreeMap::from([("read".to_owned(), histogram)]),
            samples,
        }
    }

    fn plain(report: &Report) -> String {
        anstream::adapter::strip_str(&render(report)).to_string()
    }
}
