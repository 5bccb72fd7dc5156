//! Compares an object of this controller with its desired state.

use control_runtime::{Action, Cache, Plan, Ref, Write, merge_patch};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Fields of metadata that this controller writes.
const METADATA: [&str; 3] = ["labels", "annotations", "ownerReferences"];

/// Plans the creation or the change of an object. `fields` are its metadata, and all fields that this controller writes; those that are
/// null are absent.
pub(super) fn ensure<I>(
    plan: &mut Plan<I>,
    cache: &Cache,
    object: Ref,
    present: Option<&impl Serialize>,
    fields: &Value,
) {
    let Some(present) = present.and_then(|it| serde_json::to_value(it).ok()) else {
        let mut created = compared(fields);
        created["metadata"]["name"] = json!(object.key.name);
        created["metadata"]["namespace"] = json!(object.key.namespace);
        plan.writes
            .push(Write::new(object, Action::Create(created)));
        return;
    };
    if !present["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let (old, new) = (compared(&projected(&present, fields)), compared(fields));
    if let Some(patch) = merge_patch(&old, &new) {
        plan.writes
            .push(guarded(cache, object, Action::Merge(patch), &present));
    }
}

/// Plans the change of a status.
pub(super) fn ensure_status<I>(
    plan: &mut Plan<I>,
    object: Ref,
    present: &impl Serialize,
    status: &impl Serialize,
) {
    let values = [serde_json::to_value(present), serde_json::to_value(status)];
    let [Ok(present), Ok(status)] = values else {
        return;
    };
    if pruned(&present["status"]) != pruned(&status) {
        let merge = Action::Merge(json!({"status": status}));
        let mut write = Write::new(object, merge).subresource("status");
        write.uid = uid(&present);
        plan.writes.push(write);
    }
}

/// Returns a write of the version that is in the cache: another leader may have decided since.
fn guarded(cache: &Cache, object: Ref, action: Action, present: &Value) -> Write {
    let version = cache.entry(&object).and_then(|entry| entry.version);
    let mut write = Write::new(object, action);
    write.uid = uid(present);
    write.resource_version = version.map(|version| version.to_string());
    write
}

fn uid(object: &Value) -> Option<String> {
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// Returns the fields of an object that this controller writes.
fn projected(present: &Value, fields: &Value) -> Value {
    let mut projected = json!({});
    for (name, desired) in fields.as_object().into_iter().flatten() {
        let value = &present[name];
        projected[name] = match (name.as_str(), desired) {
            ("metadata", _) => {
                let kept = METADATA.map(|it| (it.to_owned(), value[it].clone()));
                Value::Object(kept.into_iter().collect())
            }
            ("spec", Value::Object(desired)) => {
                let kept = desired.keys().map(|it| (it.clone(), value[it].clone()));
                Value::Object(kept.collect())
            }
            _ => value.clone(),
        };
    }

    projected
}

/// Returns fields in the form in which they are compared. The objects `metadata` and `spec` stay even if they are empty: a patch must
/// not remove them.
fn compared(fields: &Value) -> Value {
    let mut compared = pruned(fields);
    for name in ["metadata", "spec"] {
        if fields[name].is_object() && compared[name].is_null() {
            compared[name] = json!({});
        }
    }
    // The ports of a ServiceImport are required.
    if fields["spec"]["ports"].is_array() && compared["spec"]["ports"].is_null() {
        compared["spec"]["ports"] = json!([]);
    }

    compared
}

/// Returns a value without the fields of objects that are null, or empty lists or objects, as the API server stores them.
fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name, pruned(value)));
            let present = fields.filter(|(_, value)| !is_empty(value));
            let map: Map<_, _> = present.map(|(name, value)| (name.clone(), value)).collect();
            Value::Object(map)
        }
        Value::Array(values) => values.iter().map(pruned).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_written_fields_of_a_specification_are_compared() {
        let present = json!({
            "metadata": {"name": "a", "labels": {"x": "y"}, "resourceVersion": "3"},
            "spec": {"ports": [{"port": 1}], "clusterIP": "10.96.0.1"},
            "endpoints": [],
        });
        let same = json!({
            "metadata": {"labels": {"x": "y"}, "annotations": {}},
            "spec": {"ports": [{"port": 1}], "trafficDistribution": null},
            "endpoints": [],
        });
        let (old, new) = (compared(&projected(&present, &same)), compared(&same));
        assert_eq!(merge_patch(&old, &new), None);

        let mut other = same;
        other["metadata"]["labels"] = json!({});
        other["spec"]["trafficDistribution"] = json!("PreferClose");
        let (old, new) = (compared(&projected(&present, &other)), compared(&other));
        let patch = merge_patch(&old, &new).unwrap();
        assert_eq!(patch["spec"], json!({"trafficDistribution": "PreferClose"}));
        assert_eq!(patch["metadata"], json!({"labels": null}));
    }
}
