//! Writes that change an object into its desired state.
//!
//! An object is created, so that one of another owner is never overwritten, or changed by a merge patch, which also
//! removes entries that other field managers have written.

use super::item::WorkItem;
use crate::authentication::controller_reference;
use control_api::{ResourceSlice, labels};
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::{Map, Value};

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
    if let Some(patch) = difference(&value(present), &value(desired)) {
        let mut write = Write::new(object, Action::Merge(patch));
        write.uid = present.uid();
        // Another leader may have decided since.
        write.resource_version = present.resource_version();
        plan.writes.push(write);
    }
}

/// Returns the merge patch (RFC 7386) that changes `old` into `new`; `None` if they are equal.
pub(crate) fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let removed = before.keys().filter(|field| !after.contains_key(*field));
    let mut patch: Map<_, _> = removed.map(|field| (field.clone(), Value::Null)).collect();
    for (field, value) in after {
        let old = before.get(field).unwrap_or(&Value::Null);
        if let Some(change) = difference(old, value) {
            patch.insert(field.clone(), change);
        }
    }

    (!patch.is_empty()).then_some(Value::Object(patch))
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

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::merged;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_patch_has_the_changes_and_removes_what_is_missing() {
        let old = json!({"a": 1, "b": {"c": 2, "d": [1]}, "e": {"f": 3}});
        let new = json!({"a": 1, "b": {"c": 2, "d": [2]}, "g": {}});

        let patch = difference(&old, &new);

        assert_eq!(patch, Some(json!({"b": {"d": [2]}, "e": null, "g": {}})));
    }

    proptest! {
        #[test]
        fn a_patch_changes_the_old_object_into_the_new_one(old in object(), new in object()) {
            let patched = match difference(&old, &new) {
                Some(patch) => merged(old, patch),
                None => old,
            };

            prop_assert_eq!(difference(&patched, &new), None);
            prop_assert_eq!(patched, new);
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
            prop::collection::vec(0..3_u8, 0..3).prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 16, 4, map);
        map(value.boxed())
    }

    fn map(value: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
        let fields = prop::collection::btree_map("[a-d]", value, 0..4);
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }
}
