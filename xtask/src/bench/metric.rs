//! The tunnels, the measurements, and the numbers that each measurement yields.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tunnel {
    /// Two gateways of this project without nodes and overlay; traffic runs between their TAPs.
    Gateway,
    /// This project's complete path between two pods: node, gateway, gateway, node. Each cluster has
    /// one gateway, on another node than the pod's.
    Fabric,
    /// The complete path with the chart's defaults: two gateways on two of three nodes, and the pod
    /// on the third.
    FabricDefaults,
    /// The complete path with a gateway on each of two nodes, thus also on the pod's.
    FabricEverywhere,
    /// Two processes of the newest wireguard-go. All ratios of the bench refer to this tunnel.
    WireguardGo,
    /// Two processes of Debian's wireguard-go package.
    WireguardGoDebian,
    /// Two processes of boringtun-cli.
    Boringtun,
    /// Two processes of gotatun-cli.
    Gotatun,
    /// Two processes of nebula.
    Nebula,
}

impl Tunnel {
    /// Returns the tunnel's name on the command line and in results.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether the tunnel's program is built from this checkout.
    pub(super) fn is_ours(self) -> bool {
        self == Self::Gateway || self.is_path()
    }

    /// Returns whether the tunnel is the complete path between two pods.
    pub(super) fn is_path(self) -> bool {
        matches!(
            self,
            Self::Fabric | Self::FabricDefaults | Self::FabricEverywhere
        )
    }

    /// Returns whether the tunnel is measured over this network.
    pub(super) fn is_over(self, underlay: Underlay) -> bool {
        underlay != Underlay::Jumbo || !self.is_secondary()
    }

    /// Returns whether no target depends on the tunnel. Such a tunnel is measured only for
    /// comparison.
    pub(super) fn is_secondary(self) -> bool {
        !(self.is_ours() || self == Self::WireguardGo)
    }
}

/// The network between the ends of a tunnel. The networks differ in the handling of UDP
/// super-packets, which contain the payload of several datagrams.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Underlay {
    /// The network carries super-packets unsegmented, like a network card with UDP segmentation
    /// offload.
    #[default]
    Uso,
    /// The sending kernel segments super-packets and the receiving kernel coalesces them, as with
    /// a network card without UDP segmentation offload.
    Nouso,
    /// As [`Underlay::Nouso`], with jumbo frames: an MTU of 9,000 bytes.
    Jumbo,
}

impl Underlay {
    /// Returns the MTU in bytes.
    pub(super) fn mtu(self) -> u16 {
        match self {
            Self::Uso | Self::Nouso => 1500,
            Self::Jumbo => 9000,
        }
    }

    /// Returns the MTU of WireGuard devices in bytes, by the same rule as that of their default: it
    /// has room for the headers over IPv6.
    pub(super) fn tunnel_mtu(self) -> u16 {
        self.mtu() - 80
    }

    /// Returns whether the kernel segments super-packets.
    pub(super) fn is_segmented(self) -> bool {
        match self {
            Self::Uso => false,
            Self::Nouso | Self::Jumbo => true,
        }
    }

    /// Returns the network's name on the command line and in results.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Measurement {
    /// Round-trip times without other traffic.
    RttIdle,
    /// One TCP stream from the client to the server.
    TcpX1,
    /// One TCP stream from the server to the client.
    TcpX1Back,
    /// Four TCP streams from the client to the server.
    TcpX4,
    /// Four TCP streams from the server to the client.
    TcpX4Back,
    /// Sixteen TCP streams from the client to the server.
    TcpX16,
    /// One TCP stream in each direction.
    TcpBoth,
    /// UDP datagrams with 64 bytes of payload from the client to the server, at the highest rate
    /// that the tunnel carries.
    Udp64,
    /// UDP datagrams with 1,200 bytes of payload from the client to the server, at the highest rate
    /// that the tunnel carries.
    Udp1200,
    /// Round-trip times while four TCP streams run from the client to the server.
    RttLoaded,
    /// Handshakes that peers initiate, at the highest rate that the gateway can complete.
    Handshakes,
    /// Processor time of idle gateways. It is measured once per run.
    Idle,
    /// Processor time of two idle gateways with 1,000 peerings between them. It is measured once per run.
    IdlePeers,
    /// Memory after all rounds, and peak memory during the rounds. It is measured once per run.
    Memory,
    /// Peak memory during the start of the processes. It is measured once per run.
    Start,
}

impl Measurement {
    /// Returns the measurement's name on the command line and in results.
    pub(super) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns whether the measurement is taken over this network. `Nouso` and `Jumbo` are used
    /// only for measurements that segmentation offload and the MTU affect.
    pub(super) fn is_taken_over(self, underlay: Underlay) -> bool {
        match underlay {
            Underlay::Uso => true,
            Underlay::Nouso => matches!(
                self,
                Self::TcpX1 | Self::TcpX1Back | Self::TcpX4 | Self::Udp64
            ),
            Underlay::Jumbo => matches!(self, Self::TcpX1 | Self::TcpX4),
        }
    }

    /// Returns whether the measurement is taken of this tunnel over this network. Only a subset of
    /// the measurements is taken of [secondary](Tunnel::is_secondary) tunnels, which saves time.
    pub(super) fn is_taken_of(self, tunnel: Tunnel, underlay: Underlay) -> bool {
        if self == Self::Handshakes {
            return matches!(tunnel, Tunnel::Gateway | Tunnel::WireguardGo);
        }
        if self == Self::IdlePeers {
            return (tunnel, underlay) == (Tunnel::Gateway, Underlay::Uso);
        }
        if !tunnel.is_secondary() {
            return true;
        }
        match underlay {
            Underlay::Uso => matches!(
                self,
                Self::RttIdle
                    | Self::TcpX1
                    | Self::TcpX4
                    | Self::Udp64
                    | Self::RttLoaded
                    | Self::Idle
                    | Self::Memory
                    | Self::Start
            ),
            Underlay::Nouso => self == Self::TcpX1,
            Underlay::Jumbo => false,
        }
    }

    /// Returns whether the measurement is taken in each round; otherwise it is taken once per run.
    pub(super) fn is_repeated(self) -> bool {
        !matches!(
            self,
            Self::Idle | Self::IdlePeers | Self::Memory | Self::Start
        )
    }
}

/// The numbers of one measurement of one tunnel in one round.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Sample {
    /// The round, counted from 1; 0 if the measurement is taken once per run.
    pub(super) round: u32,
    pub(super) tunnel: Tunnel,
    #[serde(default)]
    pub(super) underlay: Underlay,
    pub(super) measurement: Measurement,
    /// Numbers by [`Metric::key`], and additional numbers that the table does not show.
    pub(super) values: BTreeMap<String, f64>,
}

/// A row of the table: one number of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    /// The measurement that yields the number.
    pub(super) measurement: Measurement,
    /// The key of the number in [`Sample::values`].
    pub(super) key: &'static str,
    /// The row's heading in the table. Two leading spaces mark a detail of the row above.
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) better: Better,
}

/// The direction in which a number improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
}

const fn metric(
    measurement: Measurement,
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    better: Better,
) -> Metric {
    Metric {
        measurement,
        key,
        title,
        unit,
        better,
    }
}

/// The rows of the table, from top to bottom.
pub(super) const METRICS: [Metric; 54] = {
    use Better::{Higher, Lower};
    use Measurement::{
        Handshakes, Idle, IdlePeers, Memory, RttIdle, RttLoaded, Start, TcpBoth, TcpX1, TcpX1Back,
        TcpX4, TcpX4Back, TcpX16, Udp64, Udp1200,
    };
    [
        metric(TcpX1, GBPS, "TCP x1 forth", "Gb/s", Higher),
        metric(TcpX1, SENDER, "  gateway CPU, sender", "s/GB", Lower),
        metric(TcpX1, RECEIVER, "  gateway CPU, receiver", "s/GB", Lower),
        metric(TcpX1, MACHINE, "  whole machine", "s/GB", Lower),
        metric(TcpX1, TO_TUNNEL, "  received, to the tunnel", "B", Higher),
        metric(TcpX1, TUNNEL, "  received, tunnel", "B", Higher),
        metric(TcpX1, TO_POD, "  received, to the pod", "B", Higher),
        metric(TcpX1, REPEATED, "  segments sent again", "", Lower),
        metric(TcpX1, REORDERED, "  segments out of order", "", Lower),
        metric(TcpX1, DISORDER, "  sum of both", "", Lower),
        metric(TcpX1Back, GBPS, "TCP x1 back", "Gb/s", Higher),
        metric(TcpX1Back, SENDER, "  gateway CPU, sender", "s/GB", Lower),
        metric(
            TcpX1Back,
            RECEIVER,
            "  gateway CPU, receiver",
            "s/GB",
            Lower,
        ),
        metric(TcpX1Back, REPEATED, "  segments sent again", "", Lower),
        metric(TcpX1Back, REORDERED, "  segments out of order", "", Lower),
        metric(TcpX4, GBPS, "TCP x4 forth", "Gb/s", Higher),
        metric(TcpX4, SENDER, "  gateway CPU, sender", "s/GB", Lower),
        metric(TcpX4, RECEIVER, "  gateway CPU, receiver", "s/GB", Lower),
        metric(TcpX4, REPEATED, "  segments sent again", "", Lower),
        metric(TcpX4, REORDERED, "  segments out of order", "", Lower),
        metric(TcpX4, FAIRNESS, "  fairness of the streams", "", Higher),
        metric(TcpX4Back, GBPS, "TCP x4 back", "Gb/s", Higher),
        metric(TcpX16, GBPS, "TCP x16 forth", "Gb/s", Higher),
        metric(TcpX16, SENDER, "  gateway CPU, sender", "s/GB", Lower),
        metric(TcpX16, RECEIVER, "  gateway CPU, receiver", "s/GB", Lower),
        metric(TcpX16, REPEATED, "  segments sent again", "", Lower),
        metric(TcpX16, REORDERED, "  segments out of order", "", Lower),
        metric(TcpX16, FAIRNESS, "  fairness of the streams", "", Higher),
        metric(TcpBoth, GBPS, "TCP both ways, sum", "Gb/s", Higher),
        metric(TcpBoth, MACHINE, "  whole machine", "s/GB", Lower),
        metric(Udp64, KPPS, "UDP 64 B, loss <= 1 %", "kpps", Higher),
        metric(
            Udp64,
            PACKET_SENDER,
            "  gateway CPU, sender",
            "us/packet",
            Lower,
        ),
        metric(
            Udp64,
            PACKET_RECEIVER,
            "  gateway CPU, receiver",
            "us/packet",
            Lower,
        ),
        metric(Udp1200, KPPS, "UDP 1200 B, loss <= 1 %", "kpps", Higher),
        metric(
            Udp1200,
            PACKET_SENDER,
            "  gateway CPU, sender",
            "us/packet",
            Lower,
        ),
        metric(
            Udp1200,
            PACKET_RECEIVER,
            "  gateway CPU, receiver",
            "us/packet",
            Lower,
        ),
        metric(RttIdle, P50, "RTT idle, p50", "us", Lower),
        metric(RttIdle, P99, "RTT idle, p99", "us", Lower),
        metric(RttLoaded, P50, "RTT beside TCP x4, p50", "us", Lower),
        metric(RttLoaded, P99, "RTT beside TCP x4, p99", "us", Lower),
        metric(RttLoaded, LOSS, "  lost", "%", Lower),
        metric(
            Handshakes,
            HANDSHAKES,
            "handshakes of known peers",
            "/s",
            Higher,
        ),
        metric(Handshakes, HANDSHAKE_CPU, "  gateway CPU", "us each", Lower),
        metric(Handshakes, UNANSWERED, "  not answered", "%", Lower),
        metric(
            Idle,
            CPU_CLIENT,
            "idle CPU, client's gateway",
            "% of a core",
            Lower,
        ),
        metric(
            Idle,
            CPU_SERVER,
            "idle CPU, server's gateway",
            "% of a core",
            Lower,
        ),
        metric(
            IdlePeers,
            CPU_CLIENT,
            "idle, 1,000 peers, client's",
            "% of a core",
            Lower,
        ),
        metric(
            IdlePeers,
            CPU_SERVER,
            "idle, 1,000 peers, server's",
            "% of a core",
            Lower,
        ),
        metric(Memory, RSS_CLIENT, "RSS, client's gateway", "MB", Lower),
        metric(Memory, RSS_SERVER, "RSS, server's gateway", "MB", Lower),
        metric(Memory, PEAK_CLIENT, "  at most, client's", "MB", Lower),
        metric(Memory, PEAK_SERVER, "  at most, server's", "MB", Lower),
        metric(Start, START_CLIENT, "  to start, client's", "MB", Lower),
        metric(Start, START_SERVER, "  to start, server's", "MB", Lower),
    ]
};

/// Received TCP payload, in Gb/s.
pub(super) const GBPS: &str = "gbps";
/// Mean size of a frame that the client's gateways read from their TAPs, in bytes.
pub(super) const TO_TUNNEL: &str = "to_tunnel_bytes_per_receive";
/// Mean size of what the server's gateways receive by one system call, in bytes.
pub(super) const TUNNEL: &str = "tunnel_bytes_per_receive";
/// Mean size of a frame that the server's pod receives, in bytes.
pub(super) const TO_POD: &str = "to_pod_bytes_per_receive";
/// TCP segments that either end has retransmitted.
pub(super) const REPEATED: &str = "repeated_segments";
/// TCP segments that arrived out of order at either end.
pub(super) const REORDERED: &str = "reordered_segments";
/// The sum of [`REPEATED`] and [`REORDERED`].
pub(super) const DISORDER: &str = "repeated_or_reordered_segments";
/// Jain's fairness index of n TCP streams, from 1 / n to 1.
pub(super) const FAIRNESS: &str = "fairness";
/// Processor time of the sender's gateway, in seconds per GB of payload.
pub(super) const SENDER: &str = "sender_cpu_s_per_gb";
/// Processor time of the receiver's gateway, in seconds per GB of payload.
pub(super) const RECEIVER: &str = "receiver_cpu_s_per_gb";
/// Processor time of all processes and the kernel, in seconds per GB of payload.
pub(super) const MACHINE: &str = "machine_cpu_s_per_gb";
/// Thousands of datagrams per second, at the highest rate with a loss of at most 1 %.
pub(super) const KPPS: &str = "carried_kpps";
/// Processor time of the sender's gateway, in microseconds per datagram.
pub(super) const PACKET_SENDER: &str = "sender_cpu_us_per_packet";
/// Processor time of the receiver's gateway, in microseconds per datagram.
pub(super) const PACKET_RECEIVER: &str = "receiver_cpu_us_per_packet";
pub(super) const HANDSHAKES: &str = "handshakes_per_second";
/// Processor time of the gateway, in microseconds per handshake.
pub(super) const HANDSHAKE_CPU: &str = "responder_cpu_us_per_handshake";
/// Percentage of the handshake initiations that got no response.
pub(super) const UNANSWERED: &str = "unanswered_percent";
/// Percentage of the packets that are lost.
pub(super) const LOSS: &str = "loss_percent";
/// Median round-trip time, in microseconds.
pub(super) const P50: &str = "p50_us";
/// 99th percentile of the round-trip time, in microseconds.
pub(super) const P99: &str = "p99_us";
/// Processor time of the idle gateway of the client, in percent of a core.
pub(super) const CPU_CLIENT: &str = "client_gateway_cpu_percent";
/// Processor time of the idle gateway of the server, in percent of a core.
pub(super) const CPU_SERVER: &str = "server_gateway_cpu_percent";
/// Resident memory of the client's gateway after the rounds, in MB.
pub(super) const RSS_CLIENT: &str = "client_gateway_rss_mb";
/// Resident memory of the server's gateway after the rounds, in MB.
pub(super) const RSS_SERVER: &str = "server_gateway_rss_mb";
/// Peak resident memory of the client's gateway during the rounds, in MB.
pub(super) const PEAK_CLIENT: &str = "client_gateway_rss_peak_mb";
/// Peak resident memory of the server's gateway during the rounds, in MB.
pub(super) const PEAK_SERVER: &str = "server_gateway_rss_peak_mb";
/// Peak resident memory of the client's gateway during its start, in MB.
pub(super) const START_CLIENT: &str = "client_gateway_rss_start_mb";
/// Peak resident memory of the server's gateway during its start, in MB.
pub(super) const START_SERVER: &str = "server_gateway_rss_start_mb";
/// Number of busy cores directly before the measurement.
pub(super) const OTHERS: &str = "cores_busy_before";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_number_is_in_the_table_once() {
        let keys: BTreeSet<_> = METRICS
            .iter()
            .map(|metric| (metric.measurement, metric.key))
            .collect();

        assert_eq!(keys.len(), METRICS.len());
    }

    #[test]
    fn names_equal_the_values_of_the_command_line() {
        assert_eq!(Measurement::TcpX1Back.name(), "tcp-x1-back");
        assert_eq!(Measurement::Udp64.name(), "udp64");
    }
}
