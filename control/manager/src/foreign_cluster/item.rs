//! Work items of the ForeignCluster controller.

use std::fmt;

/// A work item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The ForeignCluster of a peer, by cluster ID.
    Peer(String),
    /// The probe of a peer's API server, by cluster ID.
    Probe(String),
    /// The watches in a namespace.
    Watches(String),
}

impl WorkItem {
    /// Returns the kind, for metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Peer(_) => "peer",
            Self::Probe(_) => "probe",
            Self::Watches(_) => "watches",
        }
    }

    /// Returns the peer or the namespace.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Peer(name) | Self::Probe(name) | Self::Watches(name) => name,
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}
