//! Metrics of the watch.

use control_runtime::{self as runtime, RuntimeStatus};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The metrics of a [`Watch`](crate::Watch). Without a watch, they stay empty.
///
/// Their labels name resources and verbs, never objects or peers, so their number is that of the
/// registrations.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) runtime: runtime::Metrics,
    status: Arc<OnceLock<RuntimeStatus>>,
}

impl Metrics {
    /// Creates the metrics in a registry, usually in one with the prefix of the process.
    pub fn new(registry: &mut Registry) -> Self {
        let status = Arc::default();
        registry.register_collector(Box::new(Watches(Arc::clone(&status))));

        Self {
            runtime: runtime::Metrics::new(registry),
            status,
        }
    }

    /// Has the metrics report the watches of a runtime; without effect after the first call.
    pub(crate) fn follow(&self, status: RuntimeStatus) {
        drop(self.status.set(status));
    }
}

/// Counts the failing watches at each scrape.
#[derive(Debug)]
struct Watches(Arc<OnceLock<RuntimeStatus>>);

impl Collector for Watches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let failing = self.0.get().map_or(0, |status| status.failing().len());
        let descriptor = encoder.encode_descriptor(
            "watches_failing",
            "Watches whose last request failed",
            None,
            MetricType::Gauge,
        )?;

        ConstGauge::new(i64::try_from(failing).unwrap_or(i64::MAX)).encode(descriptor)
    }
}

#[cfg(test)]
mod tests;
