//! Renders the most important numbers of a result as bar charts in an SVG document.

use super::metric::{self, Better, Measurement, Tunnel, Underlay};
use super::results::Row;
use super::table::number;
use std::fmt::Write as _;

/// Returns an SVG document with a bar chart for each measured number of [`PANELS`].
pub(super) fn render(rows: &[Row]) -> String {
    let panels: Vec<(&str, &Row)> = PANELS
        .iter()
        .filter_map(|(title, underlay, measurement, key)| {
            let row = rows.iter().find(|row| {
                row.underlay == *underlay && row.measurement == *measurement && row.key == *key
            })?;
            Some((*title, row))
        })
        .collect();
    let heights: Vec<u32> = panels.iter().map(|(_, row)| height(row)).collect();
    let lines = heights.chunks(COLUMNS);
    let total: u32 = lines
        .map(|line| line.iter().max().copied().unwrap_or_default())
        .sum();
    let width = PANEL_WIDTH * COLUMNS as u32;

    let mut svg = String::new();
    // Writing to a string cannot fail, so the results of `writeln!` are ignored.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {total}\" \
         width=\"{width}\" height=\"{total}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{total}\" fill=\"white\"/>"
    );
    let mut top = 0;
    for (line, heights) in panels.chunks(COLUMNS).zip(heights.chunks(COLUMNS)) {
        for (column, (title, row)) in line.iter().enumerate() {
            panel(&mut svg, PANEL_WIDTH * column as u32, top, title, row);
        }
        top += heights.iter().max().copied().unwrap_or_default();
    }
    svg.push_str("</svg>\n");

    svg
}

type Panel = (&'static str, Underlay, Measurement, &'static str);

/// The numbers that get a bar chart, row by row. A row has [`COLUMNS`] charts.
const PANELS: [Panel; 10] = {
    use Measurement::{Memory, RttIdle, RttLoaded, TcpX1, TcpX4, Udp64};
    use Underlay::{Nouso, Uso};
    [
        ("TCP x1", Uso, TcpX1, metric::GBPS),
        ("TCP x4", Uso, TcpX4, metric::GBPS),
        ("TCP x1, nouso", Nouso, TcpX1, metric::GBPS),
        ("UDP 64 B, loss at most 1 %", Uso, Udp64, metric::KPPS),
        ("gateway CPU, encrypting", Uso, TcpX1, metric::SENDER),
        ("gateway CPU, decrypting", Uso, TcpX1, metric::RECEIVER),
        ("RTT idle, p50", Uso, RttIdle, metric::P50),
        ("RTT idle, p99", Uso, RttIdle, metric::P99),
        ("RTT beside TCP x4, p50", Uso, RttLoaded, metric::P50),
        ("RSS at most, server's", Uso, Memory, metric::PEAK_SERVER),
    ]
};

const COLUMNS: usize = 2;

// Lengths in pixels.
const PANEL_WIDTH: u32 = 480;
const TITLE_HEIGHT: u32 = 36;
const BAR_STEP: u32 = 22;
const BAR_HEIGHT: u32 = 14;
const NAME_WIDTH: u32 = 140;
const BAR_WIDTH: f64 = 250.0;
const MARGIN: u32 = 16;

fn height(row: &Row) -> u32 {
    TITLE_HEIGHT + BAR_STEP * row.tunnels.len() as u32 + MARGIN
}

/// Draws a bar chart of one number. A bar's length is the median, and a line on the bar extends
/// from the minimum to the maximum.
fn panel(svg: &mut String, left: u32, top: u32, title: &str, row: &Row) {
    let most = row
        .tunnels
        .values()
        .map(|summary| summary.max)
        .fold(0.0, f64::max);
    // If all medians are zero, all bars are empty.
    let scale = if most > 0.0 { BAR_WIDTH / most } else { 0.0 };
    let better = match row.metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };

    let _ = writeln!(
        svg,
        "<g transform=\"translate({left} {top})\">\n\
         <text x=\"{MARGIN}\" y=\"24\" font-weight=\"bold\">{title}, {} <tspan \
         font-weight=\"normal\" fill=\"#666\">({better})</tspan></text>",
        row.unit
    );
    for (index, (tunnel, summary)) in (0..).zip(&row.tunnels) {
        let y = TITLE_HEIGHT + BAR_STEP * index;
        let middle = y + BAR_HEIGHT / 2;
        let base = y + BAR_HEIGHT - 3;
        let x = f64::from(NAME_WIDTH + MARGIN);
        let [from, at, to] =
            [summary.min, summary.median, summary.max].map(|value| x + value * scale);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR_HEIGHT}\" fill=\"{}\"/>\n\
             <path d=\"M{from:.1} {middle}H{to:.1}\" stroke=\"#222\"/>\n\
             <text x=\"{:.1}\" y=\"{base}\">{}</text>",
            NAME_WIDTH + MARGIN - 6,
            tunnel.name(),
            at - x,
            colour(*tunnel),
            to + 6.0,
            number(summary.median),
        );
    }
    svg.push_str("</g>\n");
}

fn colour(tunnel: Tunnel) -> &'static str {
    match tunnel {
        Tunnel::Gateway => "#d9480f",
        Tunnel::Fabric => "#f59f00",
        Tunnel::FabricDefaults => "#f76707",
        Tunnel::FabricEverywhere => "#fab005",
        Tunnel::WireguardGo => "#1971c2",
        Tunnel::WireguardGoDebian | Tunnel::Boringtun | Tunnel::Gotatun | Tunnel::Nebula => {
            "#adb5bd"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::rows;
    use super::super::results::tests::gbps;
    use super::*;

    #[test]
    fn bars_are_in_proportion_and_the_longest_fills_its_panel() {
        let samples = [
            gbps(1, Tunnel::Gateway, 4.0),
            gbps(1, Tunnel::WireguardGo, 1.0),
        ];

        let svg = render(&rows(&samples));

        assert!(svg.contains("width=\"250.0\""), "{svg}");
        assert!(svg.contains("width=\"62.5\""), "{svg}");
        assert!(svg.contains(">gateway</text>"), "{svg}");
    }

    #[test]
    fn an_unmeasured_number_has_no_panel() {
        let svg = render(&rows(&[gbps(1, Tunnel::Gateway, 0.0)]));

        assert_eq!(svg.matches("<g ").count(), 1);
        assert!(!svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn every_element_is_closed() {
        let svg = render(&rows(&[gbps(1, Tunnel::Fabric, 2.0)]));

        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert_eq!(
            svg.matches("<text ").count(),
            svg.matches("</text>").count()
        );
        assert!(svg.ends_with("</svg>\n"));
    }
}
