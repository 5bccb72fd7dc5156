//! Assigns the fields that an earlier release wrote by `Update` to the manager that applies.
//!
//! Without this, an Apply that no longer names a field does not remove it: the Update entry still
//! owns it. client-go's `csaupgrade` does the same for `kubectl apply`.
//! Source: Kubernetes documentation, Server-Side Apply, "Upgrading from client-side apply".

use serde_json::{Map, Value, json};

/// Returns whether `Update` entries of `adopted` managers contain fields that the Apply entry of `manager` lacks.
pub(crate) fn has_rest(object: &Value, manager: &str, adopted: &[&str], subresource: &str) -> bool {
    let entries = &object["metadata"]["managedFields"];
    let entries = entries.as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |operation: &'static str, managers: &[&str]| {
        let mut fields = Value::Object(Map::new());
        for entry in entries {
            if entry["operation"] == operation
                && text(entry, "subresource") == subresource
                && managers.contains(&text(entry, "manager"))
            {
                merge(&mut fields, &entry["fieldsV1"]);
            }
        }
        fields
    };

    !contains(&of("Apply", &[manager]), &of("Update", adopted))
}

/// Returns whether a set of fields (FieldsV1) contains another one.
fn contains(all: &Value, part: &Value) -> bool {
    let members = part.as_object().into_iter().flatten();
    // `.` is the list or map itself, which has an owner of its own only in entries of `Update`.
    let mut members = members.filter(|(name, _)| *name != ".");
    members.all(|(name, part)| all.get(name).is_some_and(|all| contains(all, part)))
}

/// Returns the JSON patch (RFC 6902) that assigns the `Update` entries of `adopted` managers to
/// `manager`; `None` if there are none.
///
/// The patch fails with a conflict if the object has changed since it was read.
pub(crate) fn adoption(
    object: &Value,
    manager: &str,
    adopted: &[&str],
    subresource: &str,
) -> Option<Value> {
    let metadata = object.get("metadata")?;
    let version = metadata.get("resourceVersion")?.as_str()?;
    let entries = metadata.get("managedFields")?.as_array()?;
    let is_adopted = |entry: &Value| {
        entry["operation"] == "Update"
            && text(entry, "subresource") == subresource
            && adopted.contains(&text(entry, "manager"))
    };
    let (old, mut kept): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_adopted);
    let first = old.first()?;
    let mut fields = Value::Object(Map::new());
    for entry in &old {
        merge(&mut fields, &entry["fieldsV1"]);
    }

    let is_ours = |entry: &&mut Value| {
        entry["operation"] == "Apply"
            && text(entry, "subresource") == subresource
            && text(entry, "manager") == manager
            && entry["apiVersion"] == first["apiVersion"]
    };
    if let Some(ours) = kept.iter_mut().find(is_ours) {
        merge(&mut ours["fieldsV1"], &fields);
    } else {
        let mut ours = first.clone();
        ours["manager"] = manager.into();
        ours["operation"] = "Apply".into();
        ours["fieldsV1"] = fields;
        kept.push(ours);
    }

    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": kept},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

fn text<'a>(entry: &'a Value, field: &str) -> &'a str {
    entry.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Adds the members of one set of fields (FieldsV1) to another.
fn merge(into: &mut Value, from: &Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else {
        return;
    };
    for (name, members) in from {
        match into.get_mut(name) {
            Some(known) => merge(known, members),
            None => {
                into.insert(name.clone(), members.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn object(entries: &[Value]) -> Value {
        json!({"metadata": {"resourceVersion": "7", "managedFields": entries}})
    }

    #[test]
    fn entries_of_an_earlier_release_become_one_entry_of_apply() {
        let object = object(&[
            entry("old", "Update", json!({"f:data": {"f:a": {}}})),
            entry("older", "Update", json!({"f:data": {"f:b": {}}})),
            entry("kubectl", "Update", json!({"f:data": {"f:c": {}}})),
        ]);

        let patch = adoption(&object, "new", &["old", "older"], "").unwrap();

        let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let expected = [
            entry("kubectl", "Update", json!({"f:data": {"f:c": {}}})),
            entry("new", "Apply", fields),
        ];
        assert_eq!(patch[0]["value"], json!(expected));
        assert_eq!(patch[1]["value"], "7");
    }

    #[test]
    fn an_existing_entry_of_apply_gets_the_fields_too() {
        let object = object(&[
            entry("new", "Apply", json!({"f:data": {"f:a": {}}})),
            entry("new", "Update", json!({"f:data": {"f:b": {}}})),
        ]);

        let patch = adoption(&object, "new", &["new"], "").unwrap();

        let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
        assert_eq!(patch[0]["value"], json!([entry("new", "Apply", fields)]));
    }

    #[test]
    fn the_rest_are_fields_that_an_apply_does_not_name() {
        let updated = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}});
        let applied = |fields: Value| {
            let entries = [
                entry("new", "Update", updated.clone()),
                entry("new", "Apply", fields),
            ];
            has_rest(&object(&entries), "new", &["new"], "")
        };

        assert!(applied(json!({"f:data": {"f:a": {}}})));
        assert!(applied(json!({"f:metadata": {}})));
        assert!(!applied(
            json!({"f:data": {"f:a": {}, "f:b": {}, "f:c": {}}})
        ));
        let other = object(&[entry("kubectl", "Update", updated.clone())]);
        assert!(!has_rest(&other, "new", &["new"], ""));
        assert!(!has_rest(&json!({}), "new", &["new"], ""));
    }

    #[test]
    fn other_managers_and_other_subresources_are_left_alone() {
        let mut status = entry("old", "Update", json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let object = object(&[status, entry("kubectl", "Update", json!({}))]);

        assert_eq!(adoption(&object, "new", &["old"], ""), None);
        assert!(adoption(&object, "new", &["old"], "status").is_some());
        assert_eq!(adoption(&json!({}), "new", &["old"], ""), None);
    }
}
