//! Metrics of the network controller. The runtime has the metrics of work items and requests.

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    networks: Gauge,
    addresses: Gauge,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "networks_allocated",
            "Networks that have a CIDR",
            metrics.networks.clone(),
        );
        registry.register(
            "addresses_allocated",
            "IPs that have an address",
            metrics.addresses.clone(),
        );

        metrics
    }

    /// Sets the number of Networks with a CIDR, and of IPs with an address.
    pub(crate) fn allocated(&self, networks: usize, addresses: usize) {
        self.networks
            .set(i64::try_from(networks).unwrap_or(i64::MAX));
        self.addresses
            .set(i64::try_from(addresses).unwrap_or(i64::MAX));
    }
}
