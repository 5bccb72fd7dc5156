//! The metadata by which the manager recognizes its own objects, and the repair of this metadata.

use super::{is_owned_by, label};
use crate::network::kind::Key;
use control_api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

/// Returns whether the manager created an object, by its owner, or by its label if it has no owner.
///
/// An object with neither belongs to another user, even if it has the expected name.
pub(super) fn is_ours(meta: &ObjectMeta, owner_uid: Option<&str>) -> bool {
    let has_owner = meta.owner_references.iter().flatten().next().is_some();
    let is_labelled = label(meta, labels::MANAGED) == Some("true");

    is_owned_by(meta, owner_uid) || is_labelled && !has_owner
}

/// Returns the patch that restores missing or changed labels and owners of `desired`.
pub(super) fn repaired(actual: &ObjectMeta, desired: &Value) -> Option<Value> {
    let mut patch = Map::new();
    let desired_labels = desired["labels"].as_object().into_iter().flatten();
    let missing: Map<_, _> = desired_labels
        .filter(|(name, value)| label(actual, name) != value.as_str())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if !missing.is_empty() {
        patch.insert("labels".to_owned(), Value::Object(missing));
    }
    let desired_owners = desired["ownerReferences"].as_array().into_iter().flatten();
    let missing: Vec<_> = desired_owners
        .filter(|owner| !is_owned_by(actual, owner["uid"].as_str()))
        .cloned()
        .collect();
    if !missing.is_empty() {
        // A merge patch replaces the list, so the patch must contain the other owners.
        let others = actual.owner_references.iter().flatten();
        let all = others.map(|owner| json!(owner)).chain(missing);
        patch.insert("ownerReferences".to_owned(), all.collect());
    }

    (!patch.is_empty()).then(|| json!({"metadata": patch}))
}

/// Returns the labels that name the Network of an IP. An IP that is created with them needs no second write.
pub(super) fn network_labels(network: &Key) -> Map<String, Value> {
    let labels = [
        (labels::NETWORK_NAMESPACE, &network.namespace),
        (labels::NETWORK_NAME, &network.name),
    ];
    // The limit of a Network's name exceeds that of a label's value.
    let fitting = labels.into_iter().filter(|(_, value)| value.len() <= 63);

    fitting
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}
