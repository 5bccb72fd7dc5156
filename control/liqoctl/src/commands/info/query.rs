//! `--get`: one field of a report. PURE.

use crate::output::{self, Format};
use anyhow::{Result, bail};
use serde_json::Value;

/// A short name, and its path.
const SHORTCUT: (&str, &str) = ("clusterid", "local.clusterid");

/// Returns whether the first name of a path is `name`.
pub(super) fn begins_with(path: &str, name: &str) -> bool {
    path.split('.')
        .next()
        .is_some_and(|first| first.eq_ignore_ascii_case(name))
        || path
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
}

/// Returns whether a path begins with a field of virtual nodes or DaemonSets, or with an unknown one.
pub(super) fn needs_workloads(path: &str) -> bool {
    let others = ["health", "local", "peerings", "network", SHORTCUT.0];
    !others.iter().any(|name| begins_with(path, name))
}

/// Returns the field at `path`. Dots separate its names, in which upper and lower case are equal.
///
/// # Errors
///
/// Returns an error if there is no such field, or if it is empty.
pub(super) fn get(value: &Value, path: &str, format: Option<Format>) -> Result<String> {
    let lower = path.to_ascii_lowercase();
    let full = if lower == SHORTCUT.0 {
        SHORTCUT.1
    } else {
        &lower
    };
    let mut found = value;
    for name in full.split('.') {
        let fields = found.as_object();
        let field = fields.and_then(|fields| fields.iter().find(|(key, _)| is(key, name)));
        let Some((_, field)) = field else {
            bail!("field {path} not found: {}", candidates(found));
        };
        found = field;
    }
    Ok(match (found, format) {
        (Value::Null, _) => bail!("field {path} not found: it is empty"),
        (Value::String(text), None) if text.is_empty() => {
            bail!("field {path} not found: it is empty")
        }
        (Value::Array(list), _) if list.is_empty() => bail!("field {path} not found: it is empty"),
        (Value::String(text), None) => format!("{text}\n"),
        (Value::Bool(_) | Value::Number(_), None) => format!("{found}\n"),
        (other, format) => output::text(format.unwrap_or(Format::Yaml), other)?,
    })
}

/// Compares a name of a path with a field. One name of upstream's Go structs differs from its JSON.
fn is(key: &str, name: &str) -> bool {
    let key = key.to_ascii_lowercase();
    key == name || (key == "apiserveraddr" && name == "apiserver")
}

fn candidates(value: &Value) -> String {
    match value.as_object() {
        Some(fields) => {
            let names: Vec<&str> = fields.keys().map(String::as_str).collect();
            format!("available fields: {}", names.join(", "))
        }
        None => "the value has no fields".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_of_the_installation_need_no_lists_of_pods() {
        for path in ["clusterID", "local.clusterid", "Network.podCIDRs", "health"] {
            assert!(!needs_workloads(path), "{path}");
        }
        assert!(needs_workloads("virtualNodes") && needs_workloads("daemonsets"));
    }

    #[test]
    fn scalars_are_printed_plain_and_other_values_as_yaml() {
        let value = json!({
            "local": {"clusterID": "rome", "labels": {"region": "A"}},
            "network": {"podCIDRs": ["10.244.0.0/16"], "serviceCIDR": ""},
        });
        let get = |path| get(&value, path, None);

        assert_eq!(get("local.clusterID").unwrap(), "rome\n");
        assert_eq!(get("clusterid").unwrap(), "rome\n");
        assert_eq!(get("network.PodCIDRs").unwrap(), "- 10.244.0.0/16\n");
        assert_eq!(get("local.labels").unwrap(), "region: A\n");
        assert!(
            get("network.servicecidr")
                .unwrap_err()
                .to_string()
                .contains("empty")
        );
        assert!(
            get("local.nothing")
                .unwrap_err()
                .to_string()
                .contains("available fields: clusterID, labels")
        );
    }
}
