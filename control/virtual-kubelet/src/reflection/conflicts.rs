//! Metric of objects that are not reflected, because another owner of the provider's object prevents it.

use super::item::WorkItem;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Why an object is in conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The provider has an object of the name that was not reflected from this cluster.
    Foreign,
    /// Another field manager of the provider changes the object again and again.
    Contested,
}

/// The number of objects in conflict, by kind and cause. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conflicts {
    objects: Family<[(&'static str, String); 2], Gauge>,
}

impl Conflicts {
    /// Creates the metric in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let conflicts = Self::default();
        registry.register(
            "reflection_conflicts",
            "Objects that are not reflected because of another object or field manager of the provider",
            conflicts.objects.clone(),
        );

        conflicts
    }

    pub(super) fn begin(&self, item: &WorkItem, cause: Cause) {
        self.gauge(item, cause).inc();
    }

    pub(super) fn end(&self, item: &WorkItem, cause: Cause) {
        self.gauge(item, cause).dec();
    }

    /// Sets the numbers to zero, as another replica counts from now on.
    pub(super) fn reset(&self) {
        self.objects.clear();
    }

    fn gauge(&self, item: &WorkItem, cause: Cause) -> Gauge {
        let cause = match cause {
            Cause::Foreign => "foreign",
            Cause::Contested => "contested",
        };
        let labels = [
            ("kind", item.kind().to_owned()),
            ("cause", cause.to_owned()),
        ];
        self.objects.get_or_create_owned(&labels)
    }

    /// Returns the number of objects of a kind.
    #[cfg(test)]
    pub(super) fn count(&self, kind: &str, cause: &str) -> i64 {
        let labels = [("kind", kind.to_owned()), ("cause", cause.to_owned())];
        self.objects.get_or_create_owned(&labels).get()
    }
}
