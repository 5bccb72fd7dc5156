//! Exports the metrics of the gateway in OpenMetrics format. Each scrape reads the current state.

use super::lane::Histogram;
use super::state::{Gathered, PathStatus, State};
use crate::cipher::Implementation;
use crate::engine::ConnectionState;
use crate::engine::snapshot::{PeerSnapshot, SessionSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;

mod upstream;

/// Prefix of the gateway's own metrics.
const PREFIX: &str = "liqo_gateway";

/// Registers the metrics of the source of the desired state.
pub(crate) fn register_source(registry: &mut Registry) -> control_source::Metrics {
    control_source::Metrics::new(registry.sub_registry_with_prefix(PREFIX))
}

/// Registers collectors that read `state`.
pub(crate) fn register(registry: &mut Registry, state: Arc<State>) {
    let parts = Box::new(Parts(Arc::clone(&state)));
    registry
        .sub_registry_with_prefix(PREFIX)
        .register_collector(parts);
    registry
        .sub_registry_with_prefix("liqo")
        .register_collector(Box::new(upstream::Peers::new(move || {
            state.gather().report.map(|report| report.engine.peers)
        })));
}

struct Parts(Arc<State>);

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

impl Collector for Parts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Gathered {
            report,
            kernel,
            config,
            paths,
        } = self.0.gather();
        let mut out = Out(&mut encoder);
        out.gauge(
            "config_valid",
            "1 if the desired state is valid and applied, else 0",
            None,
            [(NO_LABELS, f64::from(u8::from(config.valid)))],
        )?;
        out.counter(
            "config_rejected",
            "Number of invalid desired states",
            None,
            [(NO_LABELS, config.rejected)],
        )?;
        cipher(&mut out, self.0.cipher())?;
        let kernel = kernel
            .iter()
            .map(|(name, count)| ([("event", (*name).to_owned())], *count));
        out.counter(
            "kernel_events",
            "Events counted by the eBPF programs",
            None,
            kernel,
        )?;
        path(&mut out, &paths)?;
        out.gauge(
            "up",
            "1 if the packet loop responds, else 0",
            None,
            [(NO_LABELS, f64::from(u8::from(report.is_some())))],
        )?;
        let Some(report) = report else {
            return Ok(());
        };

        let shell = report.stats.drops();
        let engine = report
            .engine
            .drops
            .iter()
            .map(|(name, count)| (*name, *count));
        let drops = shell
            .map(|drop| ("shell", drop))
            .chain(engine.map(|drop| ("engine", drop)));
        let drops = drops.map(|(part, (reason, count))| {
            (
                [("part", part.to_owned()), ("reason", reason.to_owned())],
                count,
            )
        });
        out.counter(
            "dropped_packets",
            "Dropped packets, frames and datagrams",
            None,
            drops,
        )?;
        let sizes = [
            ("tap_read", &report.stats.read),
            ("tap_written", &report.stats.written),
            ("udp_sent", &report.stats.sent),
            ("udp_received", &report.stats.received),
        ];
        super_packets(&mut out, &sizes)?;
        out.gauge(
            "open_ports",
            "Open UDP ports",
            None,
            [(
                NO_LABELS,
                f64::from(u32::try_from(report.ports).unwrap_or(u32::MAX)),
            )],
        )?;
        peers(&mut out, &report.engine.peers)
    }
}

/// Exports which implementation of ChaCha20-Poly1305 the gateway uses.
fn cipher(out: &mut Out<'_, '_>, implementation: Implementation) -> fmt::Result {
    let labels = [("implementation", implementation.name().to_owned())];
    out.gauge(
        "cipher_info",
        "1; implementation: the implementation of ChaCha20-Poly1305, ring or ipsec-mb",
        None,
        [(labels, 1.0)],
    )
}

/// Exports the sizes of super-packets read and written at the TAP and at the UDP ports.
///
/// The label `size_max` is the upper bound of a bucket, a power of two in bytes.
fn super_packets(out: &mut Out<'_, '_>, places: &[(&str, &Histogram)]) -> fmt::Result {
    let label = |place: &str| ("place", place.to_owned());
    let bytes = places
        .iter()
        .map(|(place, sizes)| ([label(place)], sizes.bytes));
    out.counter(
        "super_packet",
        "Bytes of packets and super-packets, headers included",
        Some(Unit::Bytes),
        bytes,
    )?;
    let counts = places.iter().flat_map(|(place, sizes)| {
        sizes
            .buckets()
            .map(move |(most, count)| ([label(place), ("size_max", most.to_string())], count))
    });
    out.counter(
        "super_packets",
        "Packets and super-packets by size in bytes; size_max: upper bound, a power of two",
        None,
        counts,
    )
}

/// Exports the health of the path to each peer, and the health of this cluster's nodes.
fn path(out: &mut Out<'_, '_>, status: &PathStatus) -> fmt::Result {
    let paths = status.clusters.iter().map(|(cluster_id, path)| {
        let labels = [
            ("cluster_id", cluster_id.clone()),
            ("hop", path.reason.to_owned()),
        ];
        (labels, f64::from(u8::from(path.healthy)))
    });
    out.gauge(
        "path_up",
        "1 if packets are known to pass from node to node, as far as the path is checked, else 0; hop: the broken part, or the checked part of a healthy path",
        None,
        paths,
    )?;
    let nodes = [
        ("all", status.nodes.all),
        ("cut", status.nodes.cut),
        ("resting", status.nodes.resting),
    ];
    let nodes = nodes.map(|(state, count)| ([("state", state.to_owned())], f64::from(count)));
    out.gauge(
        "nodes",
        "Ready nodes; cut: nodes without a working overlay to this replica; resting: nodes whose route agent is stopped or new",
        None,
        nodes,
    )
}

fn peers(out: &mut Out<'_, '_>, peers: &[PeerSnapshot]) -> fmt::Result {
    let label = |peer: &PeerSnapshot| [("cluster_id", peer.cluster_id.clone())];
    let connected = peers.iter().map(|peer| {
        let up = peer.connection == ConnectionState::Connected;
        (label(peer), f64::from(u8::from(up)))
    });
    out.gauge(
        "peer_up",
        "1 if the peer replies to probes, else 0",
        None,
        connected,
    )?;
    let latency = peers
        .iter()
        .filter_map(|peer| Some((label(peer), peer.latency?.as_secs_f64())));
    out.gauge(
        "peer_rtt",
        "Round-trip time of the last probe",
        Some(Unit::Seconds),
        latency,
    )?;
    let sessions = peers.iter().map(|peer| {
        let count = u32::try_from(peer.sessions.len()).unwrap_or(u32::MAX);
        (label(peer), f64::from(count))
    });
    out.gauge("sessions", "Sessions with the peer", None, sessions)?;
    let age = peers.iter().filter_map(|peer| {
        let ages = peer
            .sessions
            .iter()
            .filter_map(|session| session.last_handshake_age);
        Some((label(peer), ages.min()?.as_secs_f64()))
    });
    out.gauge(
        "last_handshake_age",
        "Time since the last handshake",
        Some(Unit::Seconds),
        age,
    )?;

    let sum = |peer: &PeerSnapshot, of: fn(&SessionSnapshot) -> u64| {
        peer.sessions.iter().map(of).sum::<u64>()
    };
    type Field = fn(&SessionSnapshot) -> u64;
    let fields: [(&str, &str, Option<Unit>, Field); 4] = [
        (
            "rx",
            "Bytes of inner packets received in current sessions",
            Some(Unit::Bytes),
            |s| s.rx_bytes,
        ),
        (
            "tx",
            "Bytes of inner packets sent in current sessions",
            Some(Unit::Bytes),
            |s| s.tx_bytes,
        ),
        (
            "rx_packets",
            "Inner packets received in current sessions",
            None,
            |s| s.rx_packets,
        ),
        (
            "tx_packets",
            "Inner packets sent in current sessions",
            None,
            |s| s.tx_packets,
        ),
    ];
    for (name, help, unit, field) in fields {
        let values = peers.iter().map(|peer| (label(peer), sum(peer, field)));
        out.counter(name, help, unit, values)?;
    }

    Ok(())
}

const NO_LABELS: [(&str, String); 0] = [];

/// Encodes metric families from values that the collector has just read.
struct Out<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Out<'_, '_> {
    fn counter<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family =
            self.0
                .encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        for (labels, value) in values {
            let metric = prometheus_client::metrics::counter::ConstCounter::new(value);
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauge<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in values {
            let metric = prometheus_client::metrics::gauge::ConstGauge::new(value);
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_the_source_have_the_prefix_of_the_gateway() {
        let mut registry = Registry::default();

        register_source(&mut registry);

        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(
            text.contains("\nliqo_gateway_watches_failing 0\n"),
            "{text}"
        );
    }
}
