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

/// Returns the JSON patch (RFC 6902) that assigns the `Update` entries of `adopted` managers, and what all others have in `lists`, to
/// `manager`; `None` if there is nothing to assign.
///
/// The patch fails with a conflict if the object has changed since it was read.
pub(crate) fn adoption(
    object: &Value,
    manager: &str,
    adopted: &[&str],
    subresource: &str,
    lists: &[Vec<String>],
) -> Option<Value> {
    let metadata = object.get("metadata")?;
    let version = metadata.get("resourceVersion")?.as_str()?;
    let mut entries = metadata.get("managedFields")?.as_array()?.clone();
    let is_applied =
        |entry: &Value| entry["operation"] == "Apply" && text(entry, "manager") == manager;
    let mut fields = Value::Object(Map::new());
    let mut like = None;
    // An untrusted API server may return anything.
    let of_subresource =
        |entry: &&mut Value| entry.is_object() && text(entry, "subresource") == subresource;
    for entry in entries.iter_mut().filter(of_subresource) {
        if is_applied(entry) {
            continue;
        }
        let is_adopted =
            entry["operation"] == "Update" && adopted.contains(&text(entry, "manager"));
        let taken = match is_adopted {
            true => std::mem::replace(&mut entry["fieldsV1"], json!({})),
            false => take_lists(&mut entry["fieldsV1"], lists),
        };
        if is_adopted || taken != json!({}) {
            merge(&mut fields, &taken);
            like.get_or_insert_with(|| entry.clone());
        }
    }
    let mut like = like?;
    entries.retain(|entry| entry["fieldsV1"] != json!({}));

    let is_ours = |entry: &&mut Value| {
        is_applied(entry)
            && text(entry, "subresource") == subresource
            && entry["apiVersion"] == like["apiVersion"]
    };
    if let Some(ours) = entries.iter_mut().find(is_ours) {
        merge(&mut ours["fieldsV1"], &fields);
    } else {
        like["manager"] = manager.into();
        like["operation"] = "Apply".into();
        like["fieldsV1"] = fields;
        entries.push(like);
    }

    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
    ]))
}

/// Removes the fields in lists from a set of fields (FieldsV1), and returns them.
fn take_lists(fields: &mut Value, lists: &[Vec<String>]) -> Value {
    let mut taken = Value::Object(Map::new());
    for list in lists {
        let Some(mut members) = take(fields, list) else {
            continue;
        };
        for name in list.iter().rev() {
            members = json!({format!("f:{name}"): members});
        }
        merge(&mut taken, &members);
    }

    taken
}

/// Removes the fields below a path from a set of fields (FieldsV1), and the sets around it that are empty then.
fn take(fields: &mut Value, path: &[String]) -> Option<Value> {
    let (name, rest) = path.split_first()?;
    let name = format!("f:{name}");
    let fields = fields.as_object_mut()?;
    if rest.is_empty() {
        return fields.remove(&name);
    }
    let below = fields.get_mut(&name)?;
    let taken = take(below, rest);
    if *below == json!({}) {
        fields.remove(&name);
    }

    taken
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

        let patch = adoption(&object, "new", &["old", "older"], "", &[]).unwrap();

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

        let patch = adoption(&object, "new", &["new"], "", &[]).unwrap();

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
    fn members_of_a_list_are_taken_from_all_managers() {
        let ports =
            |number: u16| json!({"f:ports": {format!("k:{{port:{number}}}"): {"f:name": {}}}});
        let mut edited = ports(3);
        edited["f:type"] = json!({});
        let mut status = entry("edit", "Update", json!({"f:spec": ports(4)}));
        status["subresource"] = "status".into();
        let object = object(&[
            entry("new", "Apply", json!({"f:spec": ports(1)})),
            entry("other", "Apply", json!({"f:spec": ports(2)})),
            entry("edit", "Update", json!({"f:spec": edited})),
            status.clone(),
        ]);
        let lists = [vec!["spec".to_owned(), "ports".to_owned()]];

        let patch = adoption(&object, "new", &[], "", &lists).unwrap();

        let mut all = ports(1);
        merge(&mut all, &ports(2));
        merge(&mut all, &ports(3));
        let expected = [
            entry("new", "Apply", json!({"f:spec": all})),
            entry("edit", "Update", json!({"f:spec": {"f:type": {}}})),
            status,
        ];
        assert_eq!(patch[0]["value"], json!(expected));
        assert_eq!(patch[1]["value"], "7");
    }

    #[test]
    fn a_manager_that_has_applied_nothing_gets_an_entry() {
        let mut edit = entry(
            "edit",
            "Update",
            json!({"f:status": {"f:conditions": {"k:{a}": {}}}}),
        );
        edit["subresource"] = "status".into();
        let object = object(&[edit.clone()]);
        let lists = [vec!["status".to_owned(), "conditions".to_owned()]];

        let patch = adoption(&object, "new", &[], "status", &lists).unwrap();

        edit["manager"] = "new".into();
        edit["operation"] = "Apply".into();
        assert_eq!(patch[0]["value"], json!([edit]));
    }

    #[test]
    fn nothing_is_taken_of_other_fields_and_subresources() {
        let ports = json!({"f:spec": {"f:ports": {"k:{port:1}": {}}}});
        let ours = entry("new", "Apply", ports.clone());
        let edit = entry("edit", "Update", ports);
        let lists = |name: &str| [vec!["spec".to_owned(), name.to_owned()]];

        let both = object(&[ours.clone(), edit.clone()]);
        assert_eq!(adoption(&both, "new", &[], "", &lists("rules")), None);
        assert_eq!(adoption(&both, "new", &[], "status", &lists("ports")), None);
        assert_eq!(
            adoption(&object(&[ours]), "new", &[], "", &lists("ports")),
            None
        );
        assert_eq!(adoption(&json!({}), "new", &[], "", &lists("ports")), None);
    }

    #[test]
    fn entries_that_are_no_objects_are_left_alone() {
        let odd = [json!(7), json!("x"), json!([]), json!(true), json!(null)];
        let lists = [vec!["spec".to_owned(), "ports".to_owned()]];
        assert_eq!(adoption(&object(&odd), "new", &["old"], "", &lists), None);

        let old = entry("old", "Update", json!({"f:data": {}}));
        let all: Vec<_> = odd.iter().cloned().chain([old]).collect();
        let patch = adoption(&object(&all), "new", &["old"], "", &lists).unwrap();

        let new = entry("new", "Apply", json!({"f:data": {}}));
        let expected: Vec<_> = odd.into_iter().chain([new]).collect();
        assert_eq!(patch[0]["value"], json!(expected));
    }

    #[test]
    fn other_managers_and_other_subresources_are_left_alone() {
        let mut status = entry("old", "Update", json!({"f:status": {}}));
        status["subresource"] = "status".into();
        let object = object(&[status, entry("kubectl", "Update", json!({}))]);

        assert_eq!(adoption(&object, "new", &["old"], "", &[]), None);
        assert!(adoption(&object, "new", &["old"], "status", &[]).is_some());
        assert_eq!(adoption(&json!({}), "new", &["old"], "", &[]), None);
    }
}
