//! The definitions are compared with upstream's, and upstream's objects pass through the types.
//!
//! `tests/upstream.json` holds the `spec` of each definition of upstream, without descriptions (`cargo xtask crds
//! --upstream`). `tests/objects.json` holds objects of two clusters that upstream peered.

mod objects;
mod policy;

use super::*;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Where this project's definitions differ from upstream's. An absent side is `null`.
const DIFFERENCES: &[(&str, &str)] = &[
    // The decision of the provider must be kept if a consumer applies its Tenant without the field.
    ("Tenant.spec.tenantCondition", "default"),
    // A peer's key is bounded before it is decoded.
    ("PublicKey.spec.publicKey", "maxLength"),
    // Duplicate addresses of two objects are repaired by a new address for one of them.
    ("IP.status.cidr", "x-kubernetes-validations"),
    ("IP.status.ip", "x-kubernetes-validations"),
];

/// Kinds that upstream does not have.
const ADDITIONS: &[&str] = &["ExportedService", "TenantPolicy"];

#[test]
fn each_definition_is_that_of_upstream_with_additions() {
    let upstream: Map<String, Value> =
        serde_json::from_str(include_str!("tests/upstream.json")).unwrap();
    let mut found = Vec::new();

    for crd in custom_resource_definitions() {
        let kind = crd.spec.names.kind.clone();
        if ADDITIONS.contains(&kind.as_str()) {
            continue;
        }
        let theirs = &upstream[&kind];
        let ours = serde_json::to_value(&crd.spec).unwrap();
        assert_eq!(
            crd.metadata.name,
            Some(format!("{}.{}", crd.spec.names.plural, crd.spec.group))
        );
        compare_names(&ours, theirs, &kind);
        let schema = |it: &Value| it["versions"][0]["schema"]["openAPIV3Schema"].clone();
        compare(&schema(&ours), &schema(theirs), &kind, &mut found);
    }

    let expected: Vec<_> = DIFFERENCES
        .iter()
        .map(|(path, key)| format!("{path} {key}"))
        .collect();
    found.sort();
    let mut expected = expected;
    expected.sort();
    assert_eq!(found, expected);
}

#[test]
fn every_kind_of_upstream_that_is_kept_has_a_definition() {
    let upstream: Map<String, Value> =
        serde_json::from_str(include_str!("tests/upstream.json")).unwrap();
    let mut kinds: Vec<_> = custom_resource_definitions()
        .into_iter()
        .map(|crd| crd.spec.names.kind)
        .filter(|kind| !ADDITIONS.contains(&kind.as_str()))
        .collect();
    kinds.sort();

    assert_eq!(kinds, upstream.keys().cloned().collect::<Vec<_>>());
}

#[test]
fn conditions_are_maps_by_type() {
    fn check(schema: &Value, path: &str, seen: &mut usize) {
        let properties = schema["properties"].as_object();
        for (name, value) in properties.into_iter().flatten() {
            let path = format!("{path}.{name}");
            // `remoteNamespacesConditions` maps cluster IDs to lists.
            let list = match value["additionalProperties"].is_object() {
                true => &value["additionalProperties"],
                false => value,
            };
            if name.to_lowercase().ends_with("conditions") && list["type"] == "array" {
                assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
                let keys = &list["x-kubernetes-list-map-keys"];
                assert_eq!(*keys, json!(["type"]), "{path}");
                *seen += 1;
            }
            check(value, &path, seen);
        }
    }

    let mut seen = 0;
    for crd in custom_resource_definitions() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        check(
            &schema["openAPIV3Schema"]["properties"]["status"],
            &crd.spec.names.kind,
            &mut seen,
        );
    }
    assert_eq!(seen, 13);
}

/// A definition beyond this size does not fit into the annotation of `kubectl apply`.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Half of what Helm can store of a release (1 MiB, gzip and base64); the rest is for templates.
const FILES_COMPRESSED_MAX: usize = 512 * 1024;

#[test]
fn the_chart_holds_definitions_that_kubectl_and_helm_accept() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/liqo/crds");
    let mut all = Vec::new();

    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read(&path).unwrap();
        assert!(
            text.len() as u64 <= FILE_BYTES_MAX,
            "{}: {} bytes",
            path.display(),
            text.len()
        );
        all.extend(text);
    }

    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &all).unwrap();
    let stored = encoder.finish().unwrap().len().div_ceil(3) * 4;
    assert!(stored <= FILES_COMPRESSED_MAX, "{stored} bytes");
}

/// Compares names, scope, columns and subresources. Further columns may follow upstream's.
#[track_caller]
fn compare_names(ours: &Value, theirs: &Value, kind: &str) {
    for key in ["group", "scope"] {
        assert_eq!(ours[key], theirs[key], "{kind} {key}");
    }
    for key in ["kind", "plural", "singular", "categories"] {
        assert_eq!(ours["names"][key], theirs["names"][key], "{kind} {key}");
    }
    // The API server's default, which the library does not write.
    assert_eq!(ours["names"]["listKind"], Value::Null, "{kind} listKind");
    assert_eq!(theirs["names"]["listKind"], format!("{kind}List"));
    // The library writes an empty list where upstream writes none.
    let list = |it: &Value| it.as_array().cloned().unwrap_or_default();
    assert_eq!(
        list(&ours["names"]["shortNames"]),
        list(&theirs["names"]["shortNames"]),
        "{kind} short names"
    );

    let versions = |it: &Value| it["versions"].as_array().map(Vec::len);
    assert_eq!(versions(ours), versions(theirs), "{kind} versions");
    let (ours, theirs) = (&ours["versions"][0], &theirs["versions"][0]);
    for key in ["name", "served", "storage"] {
        assert_eq!(ours[key], theirs[key], "{kind} {key}");
    }
    let subresources = |it: &Value| it["subresources"].as_object().cloned().unwrap_or_default();
    assert_eq!(
        subresources(ours),
        subresources(theirs),
        "{kind} subresources"
    );
    let key = "additionalPrinterColumns";
    let (columns, expected) = (list(&ours[key]), list(&theirs[key]));
    assert!(
        columns.starts_with(&expected),
        "{kind} columns: {columns:?}"
    );
}

/// Adds path and keyword of each difference between two schemas to `found`.
fn compare(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    let keyword = |it: &Value, key: &str| match (key, it.get(key)) {
        ("required", Some(Value::Array(names))) => {
            let mut names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.sort_unstable();
            json!(names)
        }
        (_, Some(Value::Number(number))) => json!(number.as_f64()),
        (_, value) => value.cloned().unwrap_or_default(),
    };
    let keys = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut all: Vec<_> = keys(ours).into_iter().chain(keys(theirs)).collect();
    all.sort();
    all.dedup();
    for key in all {
        let is_list_type = key == "x-kubernetes-list-type" || key == "x-kubernetes-list-map-keys";
        match key.as_str() {
            "description" | "properties" | "title" => {}
            "items" | "additionalProperties"
                if theirs.get(&key).is_some() && ours.get(&key).is_some() =>
            {
                compare(&ours[&key], &theirs[&key], &format!("{path}[]"), found);
            }
            // Upstream's are atomic lists; another test checks that ours are maps by type.
            _ if is_list_type && path.to_lowercase().ends_with("conditions") => {}
            // Likewise: the lists that `remoteNamespacesConditions` maps cluster IDs to.
            _ if is_list_type && path.ends_with("remoteNamespacesConditions[]") => {}
            _ if keyword(ours, &key) == keyword(theirs, &key) => {}
            _ => found.push(format!("{path} {key}")),
        }
    }

    let empty = Map::new();
    let theirs = theirs["properties"].as_object().unwrap_or(&empty);
    let is_root = theirs.contains_key("apiVersion")
        && theirs.contains_key("metadata")
        && theirs.contains_key("spec");
    for (name, value) in theirs {
        if is_root && name != "spec" && name != "status" {
            continue;
        }
        match ours["properties"].get(name) {
            Some(own) => compare(own, value, &format!("{path}.{name}"), found),
            None => found.push(format!("{path}.{name} absent")),
        }
    }
}
