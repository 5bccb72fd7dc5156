//! The objects that are replicated.

use control_api::authentication::resource_slice::REPLICATION_FINALIZER;
use control_api::labels;
use control_runtime::Finalizer;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::time::Duration;

/// Delays the deletion of an object until its replica is gone.
pub(super) const FINALIZER: Finalizer = Finalizer {
    name: REPLICATION_FINALIZER,
    wait_max: Duration::from_secs(300),
};

/// Returns the provider that an object is replicated to.
pub(super) fn provider(metadata: &ObjectMeta) -> Option<&str> {
    let labels = metadata.labels.as_ref()?;
    let is_replicated = labels.get(labels::REPLICATION).map(String::as_str) == Some("true");
    labels
        .get(labels::REMOTE_ID)
        .map(String::as_str)
        .filter(|_| is_replicated)
}
