//! Upstream's objects pass through the types.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Objects of upstream with several conditions of one type. A map by type refuses them.
const WITH_DUPLICATES: &[&str] = &["VirtualNode milan"];

#[test]
fn an_object_of_upstream_loses_no_field() {
    let mut passed = BTreeMap::<String, usize>::new();
    for object in objects() {
        let kind = object["kind"].as_str().unwrap();
        let after = through_type(kind, object.clone());

        assert_contains(&after, &object, kind);
        *passed.entry(kind.to_owned()).or_default() += 1;
    }

    assert_eq!(passed.len(), 19, "{passed:?}");
}

#[test]
fn an_object_without_spec_is_read_where_upstream_allows_it() {
    for crd in custom_resource_definitions() {
        let version = &crd.spec.versions[0];
        let schema = version
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        let kind = &crd.spec.names.kind;
        let object = json!({
            "apiVersion": format!("{}/{}", crd.spec.group, version.name),
            "kind": kind,
            "metadata": {"name": "empty"},
        });

        if schema.required.is_none() {
            through_type(kind, object);
        }
    }
}

#[test]
fn duplicate_conditions_of_upstream_are_known_and_reducible() {
    let mut found = BTreeSet::new();
    for mut object in objects() {
        let name = format!(
            "{} {}",
            object["kind"].as_str().unwrap(),
            object["metadata"]["name"].as_str().unwrap()
        );
        if reduce(&mut object) {
            found.insert(name);
        }
        assert!(!reduce(&mut object));
    }

    assert_eq!(found.into_iter().collect::<Vec<_>>(), WITH_DUPLICATES);
}

#[test]
fn a_reduced_object_of_upstream_is_valid_in_its_definition() {
    let schemas: BTreeMap<_, _> = custom_resource_definitions()
        .iter()
        .map(|crd| {
            let spec = serde_json::to_value(&crd.spec).unwrap();
            let schema = spec["versions"][0]["schema"]["openAPIV3Schema"].clone();
            (crd.spec.names.kind.clone(), schema)
        })
        .collect();

    for mut object in objects() {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let is_reduced = reduce(&mut object);
        for part in ["spec", "status"] {
            let (schema, value) = (&schemas[&kind]["properties"][part], &object[part]);
            if !value.is_null() {
                validate(
                    schema,
                    value,
                    &format!("{kind}.{part}, reduced: {is_reduced}"),
                );
            }
        }
    }
}

/// Asserts that a value has the types, enums, required fields and unique list keys of a schema, and no
/// field that the API server would prune.
fn validate(schema: &Value, value: &Value, path: &str) {
    let has_type = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64(),
        Some("boolean") => value.is_boolean(),
        Some(other) => panic!("{path}: unknown type {other}"),
        None => value.is_string() || value.is_i64(),
    };
    assert!(has_type, "{path}: {value} is no {}", schema["type"]);
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{path}: {value}");
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap();
        assert!(value.get(name).is_some(), "{path}: {name} is missing");
    }
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let mut seen = BTreeSet::new();
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        validate(&schema["items"], item, &format!("{path}[{index}]"));
        if let Some(keys) = keys {
            let key: Vec<_> = keys
                .iter()
                .map(|it| item[it.as_str().unwrap()].to_string())
                .collect();
            assert!(
                seen.insert(key),
                "{path}[{index}] has the key of another item"
            );
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_open = schema["x-kubernetes-preserve-unknown-fields"] == true;
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (Value::Null, Value::Null) => assert!(is_open, "{path} is pruned"),
            (Value::Null, values) => validate(values, field, &path),
            (property, _) => validate(property, field, &path),
        }
    }
}

/// Reduces each list of conditions to the first of each type. Returns whether there were duplicates.
fn reduce(value: &mut Value) -> bool {
    let mut is_reduced = false;
    match value {
        Value::Object(fields) => {
            for field in fields.values_mut() {
                is_reduced |= reduce(field);
            }
        }
        Value::Array(items) => {
            let before = items.len();
            let mut types = BTreeSet::new();
            items.retain(|item| match (&item["type"], &item["status"]) {
                (Value::String(type_), Value::String(_)) => types.insert(type_.clone()),
                _ => true,
            });
            is_reduced = items.len() < before;
            for item in items {
                is_reduced |= reduce(item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }

    is_reduced
}

fn objects() -> Vec<Value> {
    serde_json::from_str(include_str!("objects.json")).unwrap()
}

/// Deserializes an object into the type of its kind, and serializes it again.
fn through_type(kind: &str, object: Value) -> Value {
    macro_rules! types {
        ($($kind:ident)*) => {
            match kind {
                $(stringify!($kind) => {
                    let typed: $kind = serde_json::from_value(object).unwrap_or_else(|it| panic!("{kind}: {it}"));
                    serde_json::to_value(typed).unwrap()
                })*
                _ => panic!("no type for {kind}"),
            }
        };
    }

    types!(
        Configuration Connection ExportedService ForeignCluster GatewayClient GatewayServer IP Identity NamespaceMap
        NamespaceOffloading Network PublicKey Quota Renew ResourceSlice ShadowEndpointSlice ShadowPod Tenant
        VirtualNode VkOptionsTemplate WgGatewayClientTemplate WgGatewayServerTemplate
    )
}

/// Asserts that `after` has all of `before`. Empty values may be absent.
fn assert_contains(after: &Value, before: &Value, path: &str) {
    match before {
        Value::Object(fields) => {
            for (key, value) in fields.iter().filter(|(_, value)| !is_empty(value)) {
                assert_contains(&after[key], value, &format!("{path}.{key}"));
            }
        }
        Value::Array(items) => {
            assert_eq!(after.as_array().map(Vec::len), Some(items.len()), "{path}");
            for (index, item) in items.iter().enumerate() {
                assert_contains(&after[index], item, &format!("{path}[{index}]"));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            assert_eq!(after, before, "{path}")
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty)
        || value.as_array().is_some_and(Vec::is_empty)
        || value.is_null()
}
