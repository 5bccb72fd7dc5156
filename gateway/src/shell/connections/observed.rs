//! A `Connection` as the cache keeps it.

use control_api::networking::connection::ConnectionStatus;
use control_api::{Connection, labels};
use control_runtime::{Kept, Resource};

/// The fields of a Connection that its status depends on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    /// Cluster ID of the peer.
    pub(super) cluster_id: String,
    pub(super) is_terminating: bool,
    pub(super) generation: Option<i64>,
    pub(super) status: ConnectionStatus,
}

impl Kept for Observed {
    fn resource() -> Resource {
        Resource::of::<Connection>()
    }
}

impl From<Connection> for Observed {
    fn from(connection: Connection) -> Self {
        let metadata = connection.metadata;
        let labels = metadata.labels.unwrap_or_default();
        let cluster_id = labels.get(labels::REMOTE_CLUSTER_ID).cloned();

        Self {
            cluster_id: cluster_id.unwrap_or_default(),
            is_terminating: metadata.deletion_timestamp.is_some(),
            generation: metadata.generation,
            status: connection.status.unwrap_or_default(),
        }
    }
}
