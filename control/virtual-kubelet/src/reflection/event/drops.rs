//! Metric of Events that are not reflected, because there are too many.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Limit at which an Event is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// Events about one object.
    Object,
    /// Writes of the process within the interval of an Event.
    Writes,
}

/// The number of dropped Events, by limit. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drops {
    events: Family<[(&'static str, &'static str); 1], Counter>,
}

impl Drops {
    /// Creates the metric in a registry. Both limits are counted from zero.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let drops = Self::default();
        for limit in [Limit::Object, Limit::Writes] {
            drops.counter(limit);
        }
        registry.register(
            "reflection_dropped_events",
            "Events of the provider that are not reflected because of a limit",
            drops.events.clone(),
        );

        drops
    }

    pub(super) fn count(&self, limit: Limit) {
        self.counter(limit).inc();
    }

    fn counter(&self, limit: Limit) -> Counter {
        let limit = match limit {
            Limit::Object => "object",
            Limit::Writes => "writes",
        };
        self.events.get_or_create_owned(&[("limit", limit)])
    }

    /// Returns the number of Events that were dropped at a limit.
    #[cfg(test)]
    pub(crate) fn dropped(&self, limit: &'static str) -> u64 {
        self.events.get_or_create_owned(&[("limit", limit)]).get()
    }
}
