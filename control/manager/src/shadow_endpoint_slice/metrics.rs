//! Metrics of ShadowEndpointSlices. The runtime has the metrics of work items and requests.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    dropped: Counter,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "endpoint_addresses_dropped",
            "Addresses of ShadowEndpointSlices and ExportedServices that were left out of the EndpointSlices, because they are not allowed",
            metrics.dropped.clone(),
        );

        metrics
    }

    /// Counts addresses that were left out.
    pub(crate) fn drop_addresses(&self, count: usize) {
        self.dropped
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    #[cfg(test)]
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}
