//! Metrics of the node failure controller. The runtime has the metrics of work items and requests.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

/// The metrics. Clones share their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Metrics {
    deleted: Counter,
}

impl Metrics {
    /// Creates the metrics in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "pods_deleted_on_failed_nodes",
            "Terminating pods of consumers that were deleted without confirmation, because their node was not ready",
            metrics.deleted.clone(),
        );

        metrics
    }

    /// Counts a pod that was deleted.
    pub(super) fn delete_pod(&self) {
        self.deleted.inc();
    }

    #[cfg(test)]
    pub(super) fn deleted(&self) -> u64 {
        self.deleted.get()
    }
}
