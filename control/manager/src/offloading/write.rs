//! Writes that change an object into its desired state.
//!
//! An object is created, so that one of another owner is never overwritten, or changed by a merge patch, which also
//! removes entries that other field managers have written.

use super::item::WorkItem;
use crate::authentication::controller_reference;
use control_api::{ResourceSlice, labels};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write, merge_patch};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

/// Adds the creation or the change of an object to a plan, unless it has its desired state.
pub(super) fn reach<K>(plan: &mut Plan<WorkItem>, key: &Key, present: Option<&K>, desired: &K)
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let value = |object: &K| serde_json::to_value(object).unwrap_or_default();
    let object = Ref::of::<K>(&Cluster::Local, key);
    let Some(present) = present else {
        plan.writes
            .push(Write::new(object, Action::Create(value(desired))));
        return;
    };
    if let Some(patch) = merge_patch(&value(present), &value(desired)) {
        let mut write = Write::new(object, Action::Merge(patch));
        write.uid = present.uid();
        // Another leader may have decided since.
        write.resource_version = present.resource_version();
        plan.writes.push(write);
    }
}

/// Makes a slice the owner that controls an object, and labels the object as the manager's.
pub(super) fn set_owner(metadata: &mut ObjectMeta, slice: &ResourceSlice) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(labels::MANAGED.to_owned(), "true".to_owned());
    let owners = metadata.owner_references.get_or_insert_default();
    owners.retain(|owner| owner.controller != Some(true));
    let owner: Option<OwnerReference> = serde_json::from_value(controller_reference(slice)).ok();
    owners.extend(owner);
}

/// Returns the name of the slice that controls an object.
pub(super) fn owner(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    let (group, _) = owner.api_version.split_once('/')?;
    let is_slice = group == ResourceSlice::group(&()) && owner.kind == ResourceSlice::kind(&());

    is_slice.then_some(owner.name.as_str())
}

/// Adds the deletion of an object to a plan, unless it is requested already.
pub(super) fn delete<K: Resource<DynamicType = ()>>(
    plan: &mut Plan<WorkItem>,
    key: &Key,
    object: &K,
) {
    if object.meta().deletion_timestamp.is_none() {
        let uid = object.uid().unwrap_or_default();
        plan.delete(Ref::of::<K>(&Cluster::Local, key), uid);
    }
}
