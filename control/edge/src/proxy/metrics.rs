//! Metrics of the proxy.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

type Labels = [(&'static str, &'static str); 1];

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    accepted: Counter,
    refused: Family<Labels, Counter>,
    active: Gauge,
    ended: Family<Labels, Counter>,
    bytes: Family<Labels, Counter>,
}

/// Direction of data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    ToApiServer,
    ToClient,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "connections_accepted",
            "Connections to the API server that clients got",
            metrics.accepted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections of clients that got no connection to the API server, by reason",
            metrics.refused.clone(),
        );
        registry.register(
            "connections_active",
            "Open connections of clients, also those without a complete request",
            metrics.active.clone(),
        );
        registry.register(
            "connections_ended",
            "Accepted connections that have ended, by reason",
            metrics.ended.clone(),
        );
        registry.register_with_unit(
            "relayed",
            "Data that was relayed, by direction",
            Unit::Bytes,
            metrics.bytes.clone(),
        );

        metrics
    }

    pub(super) fn accepted(&self) {
        self.accepted.inc();
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    pub(super) fn ended(&self, reason: &'static str) {
        self.ended.get_or_create(&[("reason", reason)]).inc();
    }

    pub(super) fn set_active(&self, connections: usize) {
        self.active
            .set(i64::try_from(connections).unwrap_or(i64::MAX));
    }

    /// Returns the counter of bytes in one direction.
    pub(super) fn bytes(&self, direction: Direction) -> Counter {
        let direction = match direction {
            Direction::ToApiServer => "to_api_server",
            Direction::ToClient => "to_client",
        };

        self.bytes
            .get_or_create(&[("direction", direction)])
            .clone()
    }
}
