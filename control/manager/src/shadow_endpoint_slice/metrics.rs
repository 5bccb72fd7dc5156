//! Metrics of ShadowEndpointSlices. The runtime has the metrics of work items and requests.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    dropped: Counter,
    contested: Gauge,
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
        registry.register(
            "endpoint_slices_contested",
            "EndpointSlices of ShadowEndpointSlices that another field manager changes again and again",
            metrics.contested.clone(),
        );

        metrics
    }

    /// Counts addresses that were left out.
    pub(crate) fn drop_addresses(&self, count: usize) {
        self.dropped
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Counts the beginning or the end of a contest about an EndpointSlice.
    pub(super) fn count_contest(&self, was_contested: bool, is_contested: bool) {
        if !was_contested && is_contested {
            self.contested.inc();
        } else if was_contested && !is_contested {
            self.contested.dec();
        }
    }

    /// Sets the number of contests to zero.
    pub(super) fn reset_contests(&self) {
        self.contested.set(0);
    }

    #[cfg(test)]
    pub(super) fn contested(&self) -> i64 {
        self.contested.get()
    }

    #[cfg(test)]
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.get()
    }
}
