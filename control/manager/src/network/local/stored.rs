//! Objects in the cache.

use control_api::annotations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use std::fmt;

/// An object that the cache keeps.
pub(crate) trait Stored:
    kube::Resource<DynamicType = ()>
    + DeserializeOwned
    + Clone
    + PartialEq
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Whether each object belongs to a peer.
    const IS_OF_PEER: bool = false;

    /// Clears the fields that the controller does not read, above all those that change often.
    fn prune(&mut self) {}
}

/// Clears the fields of an object that the controller does not read.
pub(crate) fn keep<T: Stored>(mut object: T) -> T {
    prune_metadata(object.meta_mut());
    object.prune();
    object
}

fn prune_metadata(meta: &mut ObjectMeta) {
    meta.resource_version = None;
    if let Some(present) = &mut meta.annotations {
        present.remove(annotations::LAST_APPLIED);
    }
}
