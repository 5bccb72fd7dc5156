//! Objects with the fields that upstream writes, as JSON for server-side apply.

use control_api::labels;
use ipnet::Ipv4Net;
use serde_json::{Map, Value, json};

/// The API version of the networking kinds.
pub(crate) const NETWORKING: &str = "networking.liqo.io/v1beta1";
/// The API version of the authentication kinds.
pub(crate) const AUTHENTICATION: &str = "authentication.liqo.io/v1beta1";
/// The API version of the offloading kinds.
pub(crate) const OFFLOADING: &str = "offloading.liqo.io/v1beta1";

/// Returns an object of the networking group with the label of `peer`.
pub(crate) fn object(
    kind: &str,
    name: &str,
    namespace: Option<&str>,
    peer: &str,
    spec: Value,
) -> Value {
    object_of((NETWORKING, kind), name, namespace, peer, spec)
}

/// Returns an object of any API version and kind, with the label of `peer`.
pub(crate) fn object_of(
    (api_version, kind): (&str, &str),
    name: &str,
    namespace: Option<&str>,
    peer: &str,
    spec: Value,
) -> Value {
    let mut metadata = json!({"name": name, "labels": {labels::REMOTE_CLUSTER_ID: peer}});
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Adds labels and annotations. Keys that the object has keep their value.
pub(crate) fn add_metadata(
    object: &mut Value,
    extra_labels: &[(String, String)],
    extra_annotations: &[(String, String)],
) {
    for (field, extra) in [("labels", extra_labels), ("annotations", extra_annotations)] {
        if extra.is_empty() {
            continue;
        }
        let metadata = object["metadata"].as_object_mut();
        let existing = metadata.map(|all| all.entry(field).or_insert_with(|| Map::new().into()));
        let Some(existing) = existing.and_then(Value::as_object_mut) else {
            continue;
        };
        for (key, value) in extra {
            existing
                .entry(key.as_str())
                .or_insert_with(|| value.as_str().into());
        }
    }
}

/// Sets every field of `object` in `existing`. Lists are replaced.
pub(crate) fn merge(existing: &mut Value, object: &Value) {
    match (existing, object) {
        (Value::Object(existing), Value::Object(object)) => {
            for (key, value) in object {
                merge(existing.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (existing, object) => existing.clone_from(object),
    }
}

/// Returns the object as upstream prints it: with an empty status if its kind has a status.
pub(crate) fn printed(mut object: Value) -> Value {
    if object["kind"] != "PublicKey" {
        object["status"] = json!({});
    }
    object
}

/// Returns CIDRs as objects contain them.
pub(crate) fn texts(cidrs: &[Ipv4Net]) -> Vec<String> {
    cidrs.iter().map(ToString::to_string).collect()
}

/// Returns the YAML that `--output yaml` prints.
#[cfg(test)]
pub(crate) fn yaml(object: Value) -> String {
    use crate::output::{Format, text};

    text(Format::Yaml, &printed(object)).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_labels_never_replace_labels_of_the_object() {
        let mut manifest = object("Configuration", "a", None, "milan", json!({}));
        let extra = [
            ("liqo.io/remote-cluster-id".to_owned(), "x".to_owned()),
            ("team".to_owned(), "net".to_owned()),
        ];

        add_metadata(&mut manifest, &extra, &extra[1..]);

        let metadata = &manifest["metadata"];
        assert_eq!(metadata["labels"]["liqo.io/remote-cluster-id"], "milan");
        assert_eq!(metadata["labels"]["team"], "net");
        assert_eq!(metadata["annotations"], json!({"team": "net"}));
    }
}
