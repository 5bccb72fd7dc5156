//! Metrics of the kubelet's API.

use http::StatusCode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    requests: Family<[(&'static str, String); 2], Counter>,
    streams: Gauge,
    connections: Gauge,
    refused: Family<[(&'static str, String); 1], Counter>,
    dropped: Counter,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            streams: Gauge::default(),
            connections: Gauge::default(),
            refused: Family::default(),
            dropped: Counter::default(),
        };
        registry.register(
            "api_requests",
            "Requests to the kubelet's API, by path and code",
            metrics.requests.clone(),
        );
        registry.register(
            "api_streams",
            "Open streams of exec, attach and port-forward, and logs that are followed",
            metrics.streams.clone(),
        );
        registry.register(
            "api_connections",
            "Open connections to the kubelet's API",
            metrics.connections.clone(),
        );
        registry.register(
            "api_refused_connections",
            "Connections that were closed because of a limit, or in the TLS handshake",
            metrics.refused.clone(),
        );
        registry.register(
            "api_dropped_samples",
            "Samples of the provider's metrics that are of no pod of this Node",
            metrics.dropped.clone(),
        );

        metrics
    }

    /// Counts a request.
    pub(super) fn responded(&self, path: &str, status: StatusCode) {
        let labels = [
            ("path", path.to_owned()),
            ("code", status.as_u16().to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    /// Sets the number of open streams.
    pub(super) fn streaming(&self, streams: usize) {
        self.streams.set(i64::try_from(streams).unwrap_or(i64::MAX));
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

    /// Counts samples of other pods.
    pub(super) fn dropped(&self, samples: u64) {
        self.dropped.inc_by(samples);
    }

    /// Returns how many samples were dropped.
    #[cfg(test)]
    pub(super) fn drops(&self) -> u64 {
        self.dropped.get()
    }

    /// Returns how often a path was answered with a code.
    #[cfg(test)]
    pub(super) fn count(&self, path: &str, code: u16) -> u64 {
        let labels = [("path", path.to_owned()), ("code", code.to_string())];
        self.requests.get_or_create(&labels).get()
    }

    /// Returns how many connections were closed for a reason.
    #[cfg(test)]
    pub(super) fn refusals(&self, reason: &str) -> u64 {
        let labels = [("reason", reason.to_owned())];
        self.refused.get_or_create(&labels).get()
    }

    /// Returns the numbers of open connections and streams.
    #[cfg(test)]
    pub(super) fn open(&self) -> (i64, i64) {
        (self.connections.get(), self.streams.get())
    }
}
