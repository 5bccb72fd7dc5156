//! Metrics of the agent itself.

use super::filter::Counts;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of durations of scrapes, in seconds.
const BUCKETS: [f64; 8] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The metrics. Clones share their values.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: Family<Labels<1>, Counter>,
    scrape_duration: Histogram,
    kubelet_requests: Family<Labels<2>, Counter>,
    skipped_kubelets: Family<Labels<1>, Counter>,
    lines: Family<Labels<1>, Counter>,
    connections: Gauge,
    refused: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            scrape_duration: Histogram::new(BUCKETS),
            kubelet_requests: Family::default(),
            skipped_kubelets: Family::default(),
            lines: Family::default(),
            connections: Gauge::default(),
            refused: Family::default(),
        };
        registry.register("requests", "Requests, by outcome", metrics.requests.clone());
        registry.register_with_unit(
            "scrape_duration",
            "Time from a request for metrics to its response",
            Unit::Seconds,
            metrics.scrape_duration.clone(),
        );
        registry.register(
            "kubelet_requests",
            "Requests to kubelets, by endpoint and outcome",
            metrics.kubelet_requests.clone(),
        );
        registry.register(
            "skipped_kubelets",
            "Kubelets that a scrape has not asked, by reason",
            metrics.skipped_kubelets.clone(),
        );
        registry.register(
            "lines",
            "Lines of kubelets, by what became of them",
            metrics.lines.clone(),
        );
        registry.register(
            "connections",
            "Open connections of clients",
            metrics.connections.clone(),
        );
        registry.register(
            "refused_connections",
            "Connections that were closed because of a limit or a timeout, or in the TLS handshake",
            metrics.refused.clone(),
        );

        metrics
    }

    /// Counts a request.
    pub(super) fn requested(&self, outcome: &'static str) {
        self.requests.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Notes the duration of a scrape.
    pub(super) fn scraped(&self, duration: Duration) {
        self.scrape_duration.observe(duration.as_secs_f64());
    }

    /// Counts a request to a kubelet.
    pub(super) fn asked(&self, endpoint: &'static str, outcome: &'static str) {
        let labels = [("endpoint", endpoint), ("outcome", outcome)];
        self.kubelet_requests.get_or_create(&labels).inc();
    }

    /// Counts a kubelet that was not asked.
    pub(super) fn skipped(&self, reason: &'static str) {
        let labels = [("reason", reason)];
        self.skipped_kubelets.get_or_create(&labels).inc();
    }

    /// Counts the lines of a kubelet.
    pub(super) fn filtered(&self, counts: Counts) {
        for (fate, count) in [
            ("kept", counts.kept),
            ("dropped", counts.others),
            ("malformed", counts.malformed),
        ] {
            self.lines.get_or_create(&[("fate", fate)]).inc_by(count);
        }
    }

    /// Sets the number of open connections.
    pub(super) fn connected(&self, connections: usize) {
        let connections = i64::try_from(connections).unwrap_or(i64::MAX);
        self.connections.set(connections);
    }

    /// Counts a connection that was closed.
    pub(super) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }
}
