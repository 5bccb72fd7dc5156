//! Work items of the replication controller.

use super::kind::Kind;
use control_runtime::Key;
use std::fmt;

/// A work item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The connection to a provider, by its cluster ID.
    Peer(String),
    /// The finalizer and the status of a local object.
    Object(Kind, Key),
    /// The replica of a local object, by the name of the object. A slow provider delays only these.
    Replica(Kind, Key),
}

impl WorkItem {
    /// Returns both items of a local object.
    pub(super) fn both(kind: Kind, key: &Key) -> [Self; 2] {
        [
            Self::Object(kind, key.clone()),
            Self::Replica(kind, key.clone()),
        ]
    }

    /// Returns the kind, for metrics.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Peer(_) => "peer",
            Self::Object(..) => "object",
            Self::Replica(..) => "replica",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(id) => write!(f, "peer {id}"),
            Self::Replica(kind, key) => write!(f, "replica of {} {key}", kind.name()),
            Self::Object(kind, key) => write!(f, "{} {key}", kind.name()),
        }
    }
}
