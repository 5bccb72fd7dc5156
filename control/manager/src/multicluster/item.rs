//! Work items.

use control_runtime::Key;
use std::fmt;

/// Part that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The watches of ServiceExports and ServiceImports.
    Kinds,
    /// The watch of the ExportedServices of a provider, by its cluster ID.
    Peer(String),
    /// The watches of the Services and EndpointSlices of a namespace.
    Namespace(String),
    /// A Service, by namespace and name.
    Service(Key),
}

impl WorkItem {
    /// Returns the kind, for metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Kinds => "kinds",
            Self::Peer(_) => "peer",
            Self::Namespace(_) => "namespace",
            Self::Service(_) => "service",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kinds => f.write_str("kinds"),
            Self::Peer(id) => write!(f, "peer {id}"),
            Self::Namespace(name) => write!(f, "namespace {name}"),
            Self::Service(key) => write!(f, "service {key}"),
        }
    }
}
