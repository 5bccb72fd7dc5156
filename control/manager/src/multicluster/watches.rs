//! The watches that plans add.

use control_api::{ExportedService, labels};
use control_runtime::{Cluster, Kept, Resource, Selector, WatchId};

/// Returns the watch of all objects of a kind.
pub(super) fn all<K: Kept>() -> WatchId {
    WatchId {
        cluster: Cluster::Local,
        resource: K::resource(),
        namespace: None,
        selector: Selector::default(),
    }
}

/// Returns the watch of all objects of a kind in a namespace.
pub(super) fn within<K: Kept>(namespace: &str) -> WatchId {
    WatchId {
        namespace: Some(namespace.to_owned()),
        ..all::<K>()
    }
}

/// Returns the watch of the Services that a provider exports, in its tenant namespace of this cluster.
pub(super) fn exported(provider: &str, namespace: &str) -> WatchId {
    WatchId {
        cluster: Cluster::remote(provider),
        resource: Resource::of::<ExportedService>(),
        namespace: Some(namespace.to_owned()),
        selector: Selector {
            labels: format!("{}={provider}", labels::ORIGIN_ID),
            ..Selector::default()
        },
    }
}
