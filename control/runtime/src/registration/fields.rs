//! The fields that a controller declares to apply.
//!
//! A path is `spec.ports`, or `metadata.labels[liqo.io/managed]` for a key with dots. It includes all
//! fields below it.

use super::{Registration, RegistrationError};
use serde_json::Value;

/// Fields of every Apply, which name the object.
const IDENTITY: [&str; 4] = ["apiVersion", "kind", "metadata.name", "metadata.namespace"];

/// Checks that no two field managers declare one field of a resource.
///
/// # Errors
///
/// Returns [`RegistrationError::Owners`] with the first such field.
pub(crate) fn check(
    registrations: &[(&'static str, &Registration)],
) -> Result<(), RegistrationError> {
    for (position, (first, a)) in registrations.iter().enumerate() {
        for (second, b) in &registrations[..position] {
            if first == second || a.resource != b.resource {
                continue;
            }
            let mut fields = a.fields.iter();
            if let Some(field) = fields.find(|a| b.fields.iter().any(|b| overlaps(a, b))) {
                return Err(RegistrationError::Owners {
                    resource: Box::new(a.resource.clone()),
                    field,
                    first: second,
                    second: first,
                });
            }
        }
    }
    Ok(())
}

fn overlaps(a: &str, b: &str) -> bool {
    segments(a).zip(segments(b)).all(|(a, b)| a == b)
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    let (names, keys) = path.split_once('[').unwrap_or((path, ""));
    let keys = keys.split('[').map(|key| key.trim_end_matches(']'));
    names.split('.').chain(keys).filter(|it| !it.is_empty())
}

/// Returns the first field of `value` that is not declared; `None` if there is none, or if nothing is
/// declared.
pub(crate) fn undeclared(value: &Value, declared: &[&str]) -> Option<String> {
    if declared.is_empty() {
        return None;
    }
    let declared = declared.iter().chain(&IDENTITY);
    let paths: Vec<Vec<&str>> = declared.map(|it| segments(it).collect()).collect();
    let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
    walk(value, &paths)
}

/// Returns the first field that none of the `paths` below this value includes.
fn walk(value: &Value, paths: &[&[&str]]) -> Option<String> {
    let fields = value.as_object()?;
    fields.iter().find_map(|(name, value)| {
        let below = paths
            .iter()
            .filter(|path| path.first() == Some(&name.as_str()));
        let below: Vec<_> = below.map(|path| &path[1..]).collect();
        if below.iter().any(|path| path.is_empty()) {
            return None;
        }
        if below.is_empty() || !value.is_object() {
            return Some(name.clone());
        }
        walk(value, &below).map(|field| format!("{name}.{field}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registration::Scope;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use serde_json::json;

    fn maps(fields: &[&'static str]) -> Registration {
        Registration::whole::<ConfigMap>(Scope::All).fields(fields)
    }

    #[test]
    fn fields_of_two_managers_are_disjoint() {
        let (data, key) = (
            maps(&["data"]),
            maps(&["metadata.labels[a.b/c]", "data[k.x]"]),
        );
        let label = maps(&["metadata.labels[a.b/d]", "metadata.annotations"]);
        let nodes = Registration::whole::<Node>(Scope::All).fields(&["data"]);

        let overlap = check(&[("one", &data), ("two", &key)]).unwrap_err();
        let text = overlap.to_string();
        assert!(
            text.contains("data[k.x]") && text.contains("one") && text.contains("two"),
            "{text}"
        );
        assert_eq!(check(&[("one", &data), ("one", &key)]), Ok(()));
        assert_eq!(
            check(&[("one", &key), ("two", &label), ("three", &nodes)]),
            Ok(())
        );
    }

    #[test]
    fn a_field_that_is_not_declared_is_found() {
        let declared = ["data", "metadata.labels[a.b/c]"];
        let labels = |key: &str| json!({"data": {"k": "v"}, "metadata": {"labels": {key: "v"}}});

        assert_eq!(undeclared(&labels("a.b/c"), &declared), None);
        assert_eq!(
            undeclared(&labels("x"), &declared).as_deref(),
            Some("metadata.labels.x")
        );
        let spec = json!({"data": {}, "spec": {}});
        assert_eq!(undeclared(&spec, &declared).as_deref(), Some("spec"));
        assert_eq!(undeclared(&spec, &[]), None);
    }
}
