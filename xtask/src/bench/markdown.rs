//! Renders a result as a Markdown document.

use super::metric::{Tunnel, Underlay};
use super::results::{REFERENCE, Report, Row};
use super::stats::Summary;
use super::table::{bound, number};
use clap::ValueEnum as _;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Returns the document. `picture` is the path of the bar chart to embed.
pub(super) fn render(report: &Report, picture: Option<&str>) -> String {
    let setting = &report.setting;
    let mut text = String::new();
    // Writing to a string cannot fail, so the results of `writeln!` are ignored.
    let _ = writeln!(text, "# Bench of {}\n", setting.checkout.date);
    let modified = if setting.checkout.modified {
        ", with uncommitted changes"
    } else {
        ""
    };
    let _ = writeln!(
        text,
        "Commit `{}`{modified}. `{}`: {} rounds, {} s a measurement.\n",
        setting.checkout.commit, setting.checkout.command, setting.rounds, setting.seconds
    );
    for (name, value) in setting.checkout.machine.iter().chain(&setting.versions) {
        let _ = writeln!(text, "- {}: {value}", name.replace('_', " "));
    }
    if let Some(picture) = picture {
        let _ = writeln!(text, "\n![The results as bars]({picture})");
    }

    let _ = writeln!(
        text,
        "\n## Targets\n\nRatios are to {} in the same round.\n",
        REFERENCE.name()
    );
    let _ = writeln!(text, "| target | limit | measured | |\n|---|---|---|---|");
    for verdict in &report.targets {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            verdict.what,
            bound(verdict),
            number(verdict.measured),
            if verdict.pass { "pass" } else { "**miss**" }
        );
    }
    for underlay in Underlay::value_variants() {
        write_rows(&mut text, *underlay, &report.summary);
    }
    for (name, histogram) in &report.super_packets {
        let _ = writeln!(
            text,
            "\n## Packets: {name}\n\n| bytes at most | share | count |\n|---|---|---|"
        );
        for (bound, percent, count) in histogram.shares() {
            let _ = writeln!(text, "| {bound} | {percent:.1} % | {count} |");
        }
    }

    text
}

fn write_rows(text: &mut String, underlay: Underlay, rows: &[Row]) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.underlay == underlay).collect();
    if rows.is_empty() {
        return;
    }
    let tunnels: BTreeSet<Tunnel> = rows
        .iter()
        .flat_map(|row| row.tunnels.keys())
        .copied()
        .collect();

    let _ = writeln!(
        text,
        "\n## Over `{}`: median (min-max), ratio to {}\n",
        underlay.name(),
        REFERENCE.name()
    );
    let names: Vec<String> = tunnels.iter().map(|tunnel| tunnel.name()).collect();
    let _ = writeln!(text, "| | unit | {} |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}", "---|".repeat(tunnels.len()));
    for row in rows {
        let cells: Vec<String> = tunnels
            .iter()
            .map(|tunnel| cell(row.tunnels.get(tunnel), row.ratios.get(tunnel)))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            row.metric.title.trim(),
            row.unit,
            cells.join(" | ")
        );
    }
}

fn cell(summary: Option<&Summary>, ratio: Option<&Summary>) -> String {
    let Some(Summary { median, min, max }) = summary else {
        return String::new();
    };
    let ratio = ratio.map_or_else(String::new, |ratio| {
        format!(", **x{}**", number(ratio.median))
    });

    if (min, max) == (median, median) {
        return format!("{}{ratio}", number(*median));
    }
    format!(
        "{} ({}-{}){ratio}",
        number(*median),
        number(*min),
        number(*max)
    )
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::report;
    use super::*;

    #[test]
    fn the_document_has_setting_targets_and_numbers() {
        let text = render(&report(), Some("a.svg"));

        assert!(text.contains("Commit `abc`."), "{text}");
        assert!(text.contains("(a.svg)"), "{text}");
        assert!(
            text.contains("| TCP x1, path | at least x1.25 | 1.45 | pass |"),
            "{text}"
        );
        assert!(
            text.contains("| TCP x1 forth | Gb/s | 2.90 (2.00-3.80), **x1.45** | 2.00 |"),
            "{text}"
        );
        assert!(text.contains("| 65536 | 75.0 % | 3 |"), "{text}");
    }

    #[test]
    fn all_rows_of_a_table_have_the_same_number_of_cells() {
        let text = render(&report(), None);

        let counts: BTreeSet<usize> = text
            .lines()
            .skip_while(|line| !line.starts_with("| | unit"))
            .take_while(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(counts.len(), 1, "{text}");
    }
}
