//! Offloaded namespaces beyond the limit, whose objects are not reflected.

use super::namespaces::FOLLOWED_MAX;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;

/// Namespaces that are reported at most. Further ones are only counted.
const REPORTED_MAX: usize = FOLLOWED_MAX;

/// The namespaces that are left out. Clones share the metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct Omitted {
    count: Gauge,
    /// Namespaces of the NamespaceMap that are left out at present.
    present: BTreeSet<String>,
    /// Namespaces that this process has reported.
    reported: BTreeSet<String>,
}

impl Omitted {
    /// Creates the metric in a registry.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let omitted = Self::default();
        registry.register(
            "reflection_omitted_namespaces",
            "Offloaded namespaces whose objects are not reflected, because there are too many",
            omitted.count.clone(),
        );

        omitted
    }

    /// Notes whether a namespace is left out. Returns whether to report it, which is true once per namespace and process.
    pub(super) fn note(&mut self, namespace: &str, is_omitted: bool) -> bool {
        if is_omitted {
            self.present.insert(namespace.to_owned());
        } else {
            self.present.remove(namespace);
        }
        self.update();

        is_omitted
            && self.reported.len() < REPORTED_MAX
            && self.reported.insert(namespace.to_owned())
    }

    /// Drops the present namespaces, as another replica counts from now on.
    pub(super) fn reset(&mut self) {
        self.present.clear();
        self.update();
    }

    fn update(&self) {
        self.count
            .set(i64::try_from(self.present.len()).unwrap_or(i64::MAX));
    }

    /// Returns the value of the metric.
    #[cfg(test)]
    pub(super) fn count(&self) -> i64 {
        self.count.get()
    }
}
