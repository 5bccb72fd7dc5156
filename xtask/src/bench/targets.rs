//! The performance targets, which `cargo xtask bench --check` enforces.

use super::metric::{self, Measurement, Tunnel, Underlay};
use super::results::Row;
use serde::Serialize;

/// The result of comparing a measured number with a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// The name of the target.
    pub(super) what: &'static str,
    /// The kind of limit, which determines whether `measured` and `limit` are ratios or absolute
    /// values.
    #[serde(rename = "asked")]
    pub(super) kind: LimitKind,
    pub(super) limit: f64,
    pub(super) measured: f64,
    pub(super) pass: bool,
}

/// The comparison between a measured number and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LimitKind {
    /// The median of all rounds' ratios to the reference tunnel must be at least the limit.
    RatioMin,
    /// The median of all rounds' ratios to the reference tunnel must be at most the limit.
    RatioMax,
    /// The smallest value of all rounds must be at least the limit.
    Min,
    /// The largest value of all rounds must be at most the limit.
    Max,
}

/// Compares the measured numbers with their targets, and skips targets without a measured number.
pub(super) fn judge(rows: &[Row]) -> Vec<Verdict> {
    TARGETS
        .iter()
        .filter_map(|target| target.judge(rows))
        .collect()
}

/// Returns whether any target limits a number of this measurement over this network.
pub(super) fn need(underlay: Underlay, measurement: Measurement) -> bool {
    TARGETS
        .iter()
        .any(|target| target.underlay == underlay && target.measurement == measurement)
}

#[derive(Debug)]
struct Target {
    what: &'static str,
    tunnel: Tunnel,
    underlay: Underlay,
    measurement: Measurement,
    key: &'static str,
    kind: LimitKind,
    limit: f64,
}

impl Target {
    /// Compares the target's number with its limit; returns `None` if the number was not measured.
    fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let row = rows.iter().find(|row| {
            row.underlay == self.underlay
                && row.measurement == self.measurement
                && row.key == self.key
        })?;
        let ratio = || Some(row.ratios.get(&self.tunnel)?.median);
        let (measured, pass) = match self.kind {
            LimitKind::RatioMin => ratio().map(|it| (it, it >= self.limit))?,
            LimitKind::RatioMax => ratio().map(|it| (it, it <= self.limit))?,
            LimitKind::Min => {
                let min = row.tunnels.get(&self.tunnel)?.min;
                (min, min >= self.limit)
            }
            LimitKind::Max => {
                let max = row.tunnels.get(&self.tunnel)?.max;
                (max, max <= self.limit)
            }
        };

        Some(Verdict {
            what: self.what,
            kind: self.kind,
            limit: self.limit,
            measured,
            pass,
        })
    }
}

const fn target(
    what: &'static str,
    (tunnel, underlay): (Tunnel, Underlay),
    (measurement, key): (Measurement, &'static str),
    kind: LimitKind,
    limit: f64,
) -> Target {
    Target {
        what,
        tunnel,
        underlay,
        measurement,
        key,
        kind,
        limit,
    }
}

/// Limit on a gateway's peak memory, in MB. It applies to the start and to the rounds, because a
/// container's memory limit applies to both.
const RSS_MB_MAX: f64 = 20.0;

/// Limit on the processor time of an idle gateway, in percent of a core.
const IDLE_PERCENT_MAX: f64 = 0.3;

/// The same with 1,000 peers.
const IDLE_PEERS_PERCENT_MAX: f64 = 5.0;

/// Limit on the mean bytes that each stage of the path receives at once over a network without
/// segmentation offload. Without coalescing, a stage receives single packets of 1,400 bytes.
const RECEIVED_MIN: f64 = 30_000.0;

/// All targets, in the order of the report.
const TARGETS: [Target; 38] = {
    use LimitKind::{Max, Min, RatioMax, RatioMin};
    use Measurement::{Idle, IdlePeers, Memory, RttIdle, RttLoaded, Start, TcpX1, TcpX4, Udp64};
    use metric::{
        CPU_CLIENT, CPU_SERVER, DISORDER, GBPS, KPPS, MACHINE, P50, P99, PEAK_CLIENT, PEAK_SERVER,
        RECEIVER, SENDER, START_CLIENT, START_SERVER, TO_POD, TO_TUNNEL, TUNNEL as TUNNEL_LEG,
    };
    const TUNNEL: (Tunnel, Underlay) = (Tunnel::Gateway, Underlay::Uso);
    const NOUSO: (Tunnel, Underlay) = (Tunnel::Gateway, Underlay::Nouso);
    const DEFAULTS: (Tunnel, Underlay) = (Tunnel::FabricDefaults, Underlay::Uso);
    /// The layout with the fewest sessions.
    const ONE_REPLICA: (Tunnel, Underlay) = (Tunnel::Fabric, Underlay::Uso);
    const DEFAULTS_NOUSO: (Tunnel, Underlay) = (Tunnel::FabricDefaults, Underlay::Nouso);
    const EVERYWHERE: (Tunnel, Underlay) = (Tunnel::FabricEverywhere, Underlay::Uso);
    const EVERYWHERE_NOUSO: (Tunnel, Underlay) = (Tunnel::FabricEverywhere, Underlay::Nouso);
    [
        target(
            "TCP x1, path, nouso",
            DEFAULTS_NOUSO,
            (TcpX1, GBPS),
            RatioMin,
            0.85,
        ),
        target(
            "TCP x4, path, nouso",
            DEFAULTS_NOUSO,
            (TcpX4, GBPS),
            RatioMin,
            0.85,
        ),
        target(
            "TCP x1, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX1, GBPS),
            RatioMin,
            1.2,
        ),
        target(
            "TCP x4, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX4, GBPS),
            RatioMin,
            1.2,
        ),
        target("TCP x1, path", DEFAULTS, (TcpX1, GBPS), RatioMin, 1.25),
        target(
            "TCP x1, pods on gateways' nodes",
            EVERYWHERE,
            (TcpX1, GBPS),
            RatioMin,
            1.4,
        ),
        target(
            "machine s/GB, path, nouso",
            DEFAULTS_NOUSO,
            (TcpX1, MACHINE),
            RatioMax,
            1.1,
        ),
        target(
            "machine s/GB, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX1, MACHINE),
            RatioMax,
            0.8,
        ),
        target(
            "bytes per receive, to the tunnel, nouso",
            DEFAULTS_NOUSO,
            (TcpX1, TO_TUNNEL),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "bytes per receive, tunnel, nouso",
            DEFAULTS_NOUSO,
            (TcpX1, TUNNEL_LEG),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "bytes per receive, to the pod, nouso",
            DEFAULTS_NOUSO,
            (TcpX1, TO_POD),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "bytes per receive, to the tunnel, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX1, TO_TUNNEL),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "bytes per receive, tunnel, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX1, TUNNEL_LEG),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "bytes per receive, to the pod, pods on gateways' nodes, nouso",
            EVERYWHERE_NOUSO,
            (TcpX1, TO_POD),
            Min,
            RECEIVED_MIN,
        ),
        target(
            "UDP 64 B packets/s, path",
            DEFAULTS,
            (Udp64, KPPS),
            RatioMin,
            2.2,
        ),
        target(
            "UDP 64 B packets/s, pods on gateways' nodes",
            EVERYWHERE,
            (Udp64, KPPS),
            RatioMin,
            3.0,
        ),
        target(
            "RTT idle p50, path",
            DEFAULTS,
            (RttIdle, P50),
            RatioMax,
            0.55,
        ),
        target(
            "RTT beside TCP x4 p50, path",
            DEFAULTS,
            (RttLoaded, P50),
            RatioMax,
            0.45,
        ),
        target("TCP x1, tunnel", TUNNEL, (TcpX1, GBPS), RatioMin, 1.6),
        target("TCP x4, tunnel", TUNNEL, (TcpX4, GBPS), RatioMin, 1.5),
        target(
            "TCP x1, tunnel, nouso",
            NOUSO,
            (TcpX1, GBPS),
            RatioMin,
            1.55,
        ),
        target(
            "UDP 64 B packets/s, tunnel",
            TUNNEL,
            (Udp64, KPPS),
            RatioMin,
            4.0,
        ),
        target(
            "RTT idle p50, tunnel",
            TUNNEL,
            (RttIdle, P50),
            RatioMax,
            0.4,
        ),
        target(
            "RTT idle p99, tunnel",
            TUNNEL,
            (RttIdle, P99),
            RatioMax,
            0.4,
        ),
        target(
            "RTT beside TCP x4 p50, tunnel",
            TUNNEL,
            (RttLoaded, P50),
            RatioMax,
            0.35,
        ),
        target(
            "gateway CPU s/GB, encrypting",
            TUNNEL,
            (TcpX1, SENDER),
            RatioMax,
            0.5,
        ),
        target(
            "gateway CPU s/GB, decrypting",
            TUNNEL,
            (TcpX1, RECEIVER),
            RatioMax,
            0.5,
        ),
        target(
            "segments repeated or out of order",
            TUNNEL,
            (TcpX1, DISORDER),
            Max,
            0.0,
        ),
        target(
            "RSS to start, client, MB",
            DEFAULTS,
            (Start, START_CLIENT),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "RSS to start, server, MB",
            DEFAULTS,
            (Start, START_SERVER),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "RSS loaded, tunnel, client, MB",
            TUNNEL,
            (Memory, PEAK_CLIENT),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "RSS loaded, tunnel, server, MB",
            TUNNEL,
            (Memory, PEAK_SERVER),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "RSS loaded, path, client, MB",
            DEFAULTS,
            (Memory, PEAK_CLIENT),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "RSS loaded, path, server, MB",
            DEFAULTS,
            (Memory, PEAK_SERVER),
            Max,
            RSS_MB_MAX,
        ),
        target(
            "idle CPU, 2 peers, client, %",
            ONE_REPLICA,
            (Idle, CPU_CLIENT),
            Max,
            IDLE_PERCENT_MAX,
        ),
        target(
            "idle CPU, 2 peers, server, %",
            ONE_REPLICA,
            (Idle, CPU_SERVER),
            Max,
            IDLE_PERCENT_MAX,
        ),
        target(
            "idle CPU, 1,000 peers, client, %",
            TUNNEL,
            (IdlePeers, CPU_CLIENT),
            Max,
            IDLE_PEERS_PERCENT_MAX,
        ),
        target(
            "idle CPU, 1,000 peers, server, %",
            TUNNEL,
            (IdlePeers, CPU_SERVER),
            Max,
            IDLE_PEERS_PERCENT_MAX,
        ),
    ]
};

#[cfg(test)]
mod tests {
    use super::super::metric::Sample;
    use super::super::results::rows;
    use super::super::results::tests::{gbps, sample};
    use super::*;

    #[test]
    fn a_ratio_below_the_limit_fails() {
        let samples = [
            gbps(1, Tunnel::Gateway, 1.4),
            gbps(1, Tunnel::WireguardGo, 1.0),
        ];

        let verdicts = judge(&rows(&samples));

        assert_eq!(
            verdicts,
            [Verdict {
                what: "TCP x1, tunnel",
                kind: LimitKind::RatioMin,
                limit: 1.6,
                measured: 1.4,
                pass: false
            }]
        );
    }

    #[test]
    fn a_round_trip_must_be_shorter() {
        let rtt = |tunnel, value| sample(1, tunnel, Measurement::RttIdle, metric::P50, value);
        let samples = [rtt(Tunnel::Gateway, 100.0), rtt(Tunnel::WireguardGo, 300.0)];

        assert_eq!(passes(&samples), [true]);
    }

    #[test]
    fn the_peak_of_memory_is_limited() {
        let memory =
            |key, value| sample(0, Tunnel::FabricDefaults, Measurement::Memory, key, value);
        let samples = [
            memory(metric::RSS_CLIENT, 8.0),
            memory(metric::PEAK_CLIENT, 20.5),
        ];

        assert_eq!(passes(&samples), [false]);
    }

    #[test]
    fn the_limit_itself_passes() {
        let idle = |key, value| sample(0, Tunnel::Fabric, Measurement::Idle, key, value);
        let samples = [
            idle(metric::CPU_CLIENT, 0.3),
            idle(metric::CPU_SERVER, 0.31),
        ];

        assert_eq!(passes(&samples), [true, false]);
    }

    #[test]
    fn each_target_is_a_number_of_the_table() {
        for target in &TARGETS {
            let is_there = metric::METRICS
                .iter()
                .any(|it| it.measurement == target.measurement && it.key == target.key);
            assert!(
                is_there && target.measurement.is_taken_over(target.underlay),
                "{}",
                target.what
            );
        }
    }

    fn passes(samples: &[Sample]) -> Vec<bool> {
        judge(&rows(samples))
            .iter()
            .map(|verdict| verdict.pass)
            .collect()
    }
}
