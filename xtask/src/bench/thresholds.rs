//! What the data plane has to reach: `cargo xtask bench --check`.

use super::metric::{self, Measurement};
use super::results::Row;
use serde::Serialize;

/// Whether one threshold is reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// What is asked.
    pub(super) what: &'static str,
    /// The limit.
    pub(super) limit: f64,
    /// What was measured.
    pub(super) measured: f64,
    /// Whether the limit holds.
    pub(super) pass: bool,
}

/// The TCP x1 throughput of the complete path over that of a plain tunnel of
/// wireguard-go, at least.
const TCP_RATIO_MIN: f64 = 1.3;

/// Memory of a gateway, at most, in MB. The peaks count, while it starts and while it
/// serves, not what is left later: a container's limit does not wait either.
const RSS_MB_MAX: f64 = 20.0;

/// Processor time of an idle gateway, at most, in percent of a core.
const IDLE_PERCENT_MAX: f64 = 0.5;

/// Judges all that was measured.
pub(super) fn judge(rows: &[Row]) -> Vec<Verdict> {
    let row = |measurement, key| {
        rows.iter()
            .find(|row| row.measurement == measurement && row.key == key)
    };
    let ratio = |what, measurement| {
        let measured = row(measurement, metric::GBPS)?.ratio?.median;
        Some(Verdict {
            what,
            limit: TCP_RATIO_MIN,
            measured,
            pass: measured >= TCP_RATIO_MIN,
        })
    };
    let at_most = |what, measurement, key, limit| {
        let measured = row(measurement, key)?.fabric?.max;
        Some(Verdict {
            what,
            limit,
            measured,
            pass: measured <= limit,
        })
    };

    [
        ratio("TCP x1 forth, ratio at least", Measurement::TcpX1),
        ratio("TCP x1 back, ratio at least", Measurement::TcpX1Back),
        at_most(
            "RSS of the client's gateway to start, MB at most",
            Measurement::Start,
            metric::START_NEAR,
            RSS_MB_MAX,
        ),
        at_most(
            "RSS of the server's gateway to start, MB at most",
            Measurement::Start,
            metric::START_FAR,
            RSS_MB_MAX,
        ),
        at_most(
            "RSS of the client's gateway, MB at most",
            Measurement::Memory,
            metric::PEAK_NEAR,
            RSS_MB_MAX,
        ),
        at_most(
            "RSS of the server's gateway, MB at most",
            Measurement::Memory,
            metric::PEAK_FAR,
            RSS_MB_MAX,
        ),
        at_most(
            "idle CPU of the client's gateway, % at most",
            Measurement::Idle,
            metric::CPU_NEAR,
            IDLE_PERCENT_MAX,
        ),
        at_most(
            "idle CPU of the server's gateway, % at most",
            Measurement::Idle,
            metric::CPU_FAR,
            IDLE_PERCENT_MAX,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::metric::{Sample, Tunnel};
    use super::super::results::rows;
    use super::super::results::tests::{gbps, sample};
    use super::*;

    #[test]
    fn a_ratio_below_the_limit_fails() {
        let samples = [
            gbps(1, Tunnel::Fabric, 1.2),
            gbps(1, Tunnel::WireguardGo, 1.0),
        ];

        let verdicts = judge(&rows(&samples));

        assert_eq!(
            verdicts,
            [Verdict {
                what: "TCP x1 forth, ratio at least",
                limit: 1.3,
                measured: 1.2,
                pass: false
            }]
        );
    }

    #[test]
    fn the_peak_counts_and_not_what_is_left() {
        let memory = |key, value| sample(0, Tunnel::Fabric, Measurement::Memory, key, value);
        let samples = [
            memory(metric::RSS_NEAR, 8.0),
            memory(metric::PEAK_NEAR, 20.5),
        ];

        assert_eq!(passes(&samples), [false]);
    }

    #[test]
    fn the_limit_itself_passes() {
        let idle = |key, value| sample(0, Tunnel::Fabric, Measurement::Idle, key, value);
        let samples = [idle(metric::CPU_NEAR, 0.5), idle(metric::CPU_FAR, 0.51)];

        assert_eq!(passes(&samples), [true, false]);
    }

    fn passes(samples: &[Sample]) -> Vec<bool> {
        judge(&rows(samples))
            .iter()
            .map(|verdict| verdict.pass)
            .collect()
    }
}
