//! Metrics of the webhooks.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of durations, in seconds.
const BUCKETS: [f64; 8] = [0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 0.5, 2.0];

/// The metrics. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<[(&'static str, String); 2], Counter>,
    duration: Family<[(&'static str, String); 1], Histogram>,
    connections: Gauge,
    refused: Family<[(&'static str, String); 1], Counter>,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            connections: Gauge::default(),
            refused: Family::default(),
        };
        registry.register(
            "webhook_requests",
            "Requests for admission, by handler and outcome",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "webhook_duration",
            "Time from the header of a request to its response",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "webhook_connections",
            "Open connections to the webhooks",
            metrics.connections.clone(),
        );
        registry.register(
            "webhook_refused_connections",
            "Connections that were closed because of a limit, or in the TLS handshake",
            metrics.refused.clone(),
        );

        metrics
    }

    /// Counts a request.
    pub(super) fn handled(&self, handler: &str, outcome: &str, duration: Duration) {
        let labels = [
            ("handler", handler.to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        self.requests.get_or_create(&labels).inc();
        let labels = [("handler", handler.to_owned())];
        let duration = duration.as_secs_f64();
        self.duration.get_or_create(&labels).observe(duration);
    }

    /// Sets the number of open connections.
    pub(super) fn connected(&self, connections: usize) {
        let connections = i64::try_from(connections).unwrap_or(i64::MAX);
        self.connections.set(connections);
    }

    /// Counts a connection that was closed.
    pub(super) fn refused(&self, reason: &str) {
        let labels = [("reason", reason.to_owned())];
        self.refused.get_or_create(&labels).inc();
    }

    /// Returns how often a handler had an outcome.
    #[cfg(test)]
    pub(super) fn count(&self, handler: &str, outcome: &str) -> u64 {
        let labels = [
            ("handler", handler.to_owned()),
            ("outcome", outcome.to_owned()),
        ];
        self.requests.get_or_create(&labels).get()
    }
    /// Returns the number of open connections.
    #[cfg(test)]
    pub(super) fn connections(&self) -> i64 {
        self.connections.get()
    }
}
