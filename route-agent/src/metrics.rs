//! Prometheus metrics, which are generated from the status at each scrape.

use crate::status::Shared;
use control_source::Metrics as SourceMetrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;

/// Returns a registry with the metrics of `status`, and of the source, which counts in them.
pub(crate) fn registry(status: Shared) -> (Registry, SourceMetrics) {
    let mut registry = Registry::with_prefix("liqo_route_agent");
    registry.register_collector(Box::new(Metrics(status)));
    let source = SourceMetrics::new(&mut registry);

    (registry, source)
}

#[derive(Debug)]
struct Metrics(Shared);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let status = self.0.read();
        let alive = status.replicas.iter().filter(|it| it.alive).count();
        let reachable = status.peers.iter().filter(|it| !it.gateways.is_empty());

        let encoder = &mut encoder;
        gauge(
            encoder,
            "replicas_alive",
            "Gateway replicas that reply to probes",
            alive,
        )?;
        gauge(
            encoder,
            "peers_reachable",
            "Remote clusters that a gateway replica reaches",
            reachable.count(),
        )?;
        gauge(
            encoder,
            "config_valid",
            "1 if the current version of the desired state is valid, else 0",
            usize::from(status.config.valid),
        )?;
        gauge(
            encoder,
            "converged",
            "1 if the kernel's state is the desired one, else 0",
            usize::from(status.converged),
        )?;
        let mut paths = encoder.encode_descriptor(
            "path_up",
            "1 if the remote cluster's nodes reply to this node's echo requests, else 0",
            None,
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for peer in &status.peers {
            if let Some(up) = peer.path_up {
                let labels = [("cluster_id", peer.cluster_id.as_str())];
                ConstGauge::new(i64::from(up)).encode(paths.encode_family(&labels)?)?;
            }
        }
        let reapplies = ConstCounter::new(status.reapplies);
        reapplies.encode(encoder.encode_descriptor(
            "reapplies",
            "Repairs of kernel state that another program had changed",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?)?;

        let mut rtts = encoder.encode_descriptor(
            "probe_rtt",
            "Round-trip time of the last probe of a gateway replica",
            Some(&Unit::Seconds),
            prometheus_client::metrics::MetricType::Gauge,
        )?;
        for replica in &status.replicas {
            if let Some(rtt) = replica.rtt_seconds {
                let labels = [("replica", replica.name.as_str())];
                ConstGauge::new(rtt).encode(rtts.encode_family(&labels)?)?;
            }
        }
        let mut drops = encoder.encode_descriptor(
            "nft_drops",
            "Packets dropped by the nft table, by reason",
            None,
            prometheus_client::metrics::MetricType::Counter,
        )?;
        for (reason, packets) in &status.drops {
            let labels = [("reason", reason.as_str())];
            ConstCounter::new(*packets).encode(drops.encode_family(&labels)?)?;
        }

        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: usize) -> fmt::Result {
    let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    value.encode(encoder.encode_descriptor(
        name,
        help,
        None,
        prometheus_client::metrics::MetricType::Gauge,
    )?)
}

#[cfg(test)]
mod tests;
