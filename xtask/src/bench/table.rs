//! The results as people read them.

use super::metric::Better;
use super::results::{Report, Row};
use super::stats::Summary;
use super::superpackets::Histogram;
use crate::console::{BAD, FAINT, GOOD, TITLE};
use std::fmt::Write as _;

/// Returns the whole table, with styles.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail, so the results of `writeln!` tell nothing.
    let _ = writeln!(
        text,
        "{TITLE}{:<28}{:<12}{:>24}{:>24}{:>8}{TITLE:#}",
        "median (min-max)", "unit", "fabric, pod to pod", "wireguard-go, plain", "ratio",
    );
    for row in &report.summary {
        let ratio = row.ratio.map(|ratio| ratio.median);
        let style = match (ratio, row.metric.better) {
            (None, Better::Higher | Better::Lower) => FAINT,
            (Some(ratio), Better::Higher) if ratio >= 1.0 => GOOD,
            (Some(ratio), Better::Lower) if ratio <= 1.0 => GOOD,
            (Some(_), Better::Higher | Better::Lower) => BAD,
        };
        let _ = writeln!(
            text,
            "{:<28}{:<12}{:>24}{:>24}{style}{:>8}{style:#}",
            row.metric.title,
            row.unit,
            cell(row.fabric),
            cell(row.wireguard_go),
            ratio.map_or_else(|| "-".to_owned(), number),
        );
    }

    for (name, histogram) in &report.super_packets {
        let _ = write!(text, "\n{}", distribution(name, histogram));
    }
    for verdict in &report.thresholds {
        let (style, word) = if verdict.pass {
            (GOOD, "PASS")
        } else {
            (BAD, "FAIL")
        };
        let _ = write!(
            text,
            "\n{style}{word}{style:#} {} {}: {}",
            verdict.what,
            verdict.limit,
            number(verdict.measured)
        );
    }

    text
}

/// What stands for a row while the bench runs.
pub(super) fn brief(row: &Row) -> String {
    let ratio = row.ratio.map(|ratio| ratio.median);
    format!(
        "fabric {}, wireguard-go {} {}, ratio {}",
        row.fabric
            .map_or_else(|| "-".to_owned(), |it| number(it.median)),
        row.wireguard_go
            .map_or_else(|| "-".to_owned(), |it| number(it.median)),
        row.unit,
        ratio.map_or_else(|| "-".to_owned(), number),
    )
}

fn distribution(name: &str, histogram: &Histogram) -> String {
    let mut text = format!("{TITLE}{name}, bytes at most{TITLE:#}\n");
    for (bound, percent, count) in histogram.shares() {
        let _ = writeln!(text, "{bound:>8} {percent:>6.1} %  {count}");
    }

    text
}

fn cell(summary: Option<Summary>) -> String {
    summary.map_or_else(
        || "-".to_owned(),
        |Summary { median, min, max }| {
            format!("{} ({}-{})", number(median), number(min), number(max))
        },
    )
}

/// Three digits that count; whole from a hundred on.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::metric::Tunnel;
    use super::super::results::tests::gbps;
    use super::super::results::{Setting, rows};
    use super::super::thresholds;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_row_tells_medians_ranges_and_the_ratio() {
        let text = plain(&report());

        let row = text
            .lines()
            .find(|line| line.starts_with("TCP x1 forth"))
            .unwrap();
        let words: Vec<_> = row.split_whitespace().skip(3).collect();
        assert_eq!(
            words,
            ["Gb/s", "3.00", "(2.00-4.00)", "2.00", "(2.00-2.00)", "1.50"]
        );
    }

    #[test]
    fn super_packets_are_shares_of_all() {
        let text = plain(&report());

        assert!(text.contains("   65536   75.0 %  3\n"), "{text}");
    }

    #[test]
    fn thresholds_close_the_table() {
        let text = plain(&report());

        assert!(
            text.ends_with("\nPASS TCP x1 forth, ratio at least 1.3: 1.50"),
            "{text}"
        );
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let numbers = [0.004, 9.994, 9.996, 38.04, 99.96, 332.4].map(number);

        assert_eq!(numbers, ["0.00", "9.99", "10.0", "38.0", "100", "332"]);
    }

    fn report() -> Report {
        let samples = vec![
            gbps(1, Tunnel::Fabric, 4.0),
            gbps(1, Tunnel::WireguardGo, 2.0),
            gbps(2, Tunnel::Fabric, 2.0),
            gbps(2, Tunnel::WireguardGo, 2.0),
        ];
        let summary = rows(&samples);
        let histogram = Histogram(BTreeMap::from([(1500, 1), (4096, 0), (65536, 3)]));

        Report {
            setting: Setting {
                date: "2026-11-21T12:00:00Z".into(),
                commit: "abc".into(),
                modified: false,
                command: "cargo xtask bench".into(),
                machine: BTreeMap::new(),
                versions: BTreeMap::new(),
                rounds: 2,
                seconds: 1,
            },
            thresholds: thresholds::judge(&summary),
            summary,
            super_packets: BTreeMap::from([("read", histogram)]),
            samples,
        }
    }

    fn plain(report: &Report) -> String {
        anstream::adapter::strip_str(&render(report)).to_string()
    }
}
