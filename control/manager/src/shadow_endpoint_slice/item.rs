//! Work items of the controller of ShadowEndpointSlices.

use control_runtime::Key;
use std::fmt;

/// A ShadowEndpointSlice and its EndpointSlice, which have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkItem {
    /// Cluster ID of the consumer; empty if the namespace is not one of a consumer.
    pub(super) peer: String,
    pub(super) key: Key,
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow_endpoint_slice {}", self.key)
    }
}
