//! The metadata by which the manager recognizes its own objects, and their repair.

use super::{is_owned_by, label};
use crate::network::kind::Key;
use control_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// Returns whether an object is the manager's own: by its owner, or by its label if it has no owner.
///
/// An object with neither belongs to another user, whatever its name.
pub(super) fn is_ours(meta: &ObjectMeta, owner_uid: Option<&str>) -> bool {
    let has_owner = meta.owner_references.iter().flatten().next().is_some();
    let is_labelled = label(meta, labels::MANAGED) == Some("true");

    is_owned_by(meta, owner_uid) || is_labelled && !has_owner
}

/// Returns the patch that brings back the labels and owners of `wanted` that are missing, or changed.
pub(super) fn repaired(actual: &ObjectMeta, wanted: &Value) -> Option<Value> {
    let mut patch = Map::new();
    let wanted_labels = wanted["labels"].as_object().into_iter().flatten();
    let missing: Map<_, _> = wanted_labels
        .filter(|(name, value)| label(actual, name) != value.as_str())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !missing.is_empty() {
        patch.insert("labels".to_owned(), Value::Object(missing));
    }
    let wanted_owners = wanted["ownerReferences"].as_array().into_iter().flatten();
    let missing: Vec<_> = wanted_owners
        .filter(|owner| !is_owned_by(actual, owner["uid"].as_str()))
        .cloned()
        .collect();
    if !missing.is_empty() {
        // A merge patch replaces the list: the others stay.
        let others = actual.owner_references.iter().flatten();
        let all = others.map(|owner| json!(owner)).chain(missing);
        patch.insert("ownerReferences".to_owned(), all.collect());
    }

    (!patch.is_empty()).then(|| json!({"metadata": patch}))
}

/// Returns the labels that name the Network of an IP; an IP that is created with them needs no second write.
pub(super) fn network_labels(network: &Key) -> Map<String, Value> {
    let labels = [
        (labels::NETWORK_NAMESPACE, &network.namespace),
        (labels::NETWORK_NAME, &network.name),
    ];
    // A Network's name may be longer than a label may.
    let fitting = labels.into_iter().filter(|(_, value)| value.len() <= 63);

    fitting
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}
