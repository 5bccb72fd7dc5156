//! The two clusters of a peering, and the labels of reflected objects.

use control_api::labels;
use control_runtime::Cluster;
use std::collections::{BTreeMap, BTreeSet};

/// Values of the peering and of the VirtualNode that all reflected objects depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peering {
    /// Cluster ID of this cluster.
    pub(crate) origin: String,
    /// Cluster ID of the provider.
    pub(crate) destination: String,
    /// Keys of labels that are not reflected.
    pub(crate) labels_not_reflected: BTreeSet<String>,
    /// Keys of annotations that are not reflected.
    pub(crate) annotations_not_reflected: BTreeSet<String>,
}

impl Peering {
    /// Returns the provider's cluster.
    pub(crate) fn cluster(&self) -> Cluster {
        Cluster::remote(&self.destination)
    }

    /// Returns the labels of all objects that are reflected to the provider.
    pub(crate) fn markers(&self) -> [(&'static str, &str); 2] {
        [
            (labels::ORIGIN, self.origin.as_str()),
            (labels::DESTINATION, self.destination.as_str()),
        ]
    }

    /// Returns whether an object of the provider is reflected from this cluster.
    pub(crate) fn is_reflected(&self, present: &BTreeMap<String, String>) -> bool {
        let mut markers = self.markers().into_iter();
        markers.all(|(key, value)| present.get(key).is_some_and(|it| it == value))
    }

    /// Returns the label selector of the reflected objects.
    pub(crate) fn selector(&self) -> String {
        let terms = self.markers().map(|(key, value)| format!("{key}={value}"));
        terms.join(",")
    }

    /// Returns the label selector of the reflected objects of a virtual node's pods.
    pub(crate) fn selector_of_node(&self, node: &str) -> String {
        format!("{},{}={node}", self.selector(), labels::NODE_NAME)
    }
}
