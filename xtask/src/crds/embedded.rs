//! Derives the schemas of Kubernetes' types that Liqo's kinds embed from upstream's definitions.
//!
//! `control/api/src/tests/upstream.json` holds upstream's definitions without descriptions. A type's
//! schema is the part of a definition at the path in [`TYPES`], so that both always agree.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Name of each schema, and the kind and path of the field that it is taken from. `[]` stands for
/// the items of a list or the values of a map.
///
/// The types below the empty line make the file small: they are parts of others.
const TYPES: &[(&str, &str, &str)] = &[
    ("ContainerImage", "VirtualNode", "spec.images.[]"),
    ("DeploymentSpec", "VirtualNode", "spec.template.spec"),
    (
        "Endpoint",
        "ShadowEndpointSlice",
        "spec.template.endpoints.[]",
    ),
    (
        "EndpointPort",
        "ShadowEndpointSlice",
        "spec.template.ports.[]",
    ),
    ("LocalObjectReference", "GatewayClient", "spec.secretRef"),
    (
        "NodeAffinity",
        "VirtualNode",
        "spec.offloadingPatch.affinity.nodeAffinity",
    ),
    (
        "NodeSelector",
        "NamespaceOffloading",
        "spec.clusterSelector",
    ),
    ("ObjectReference", "Connection", "spec.gatewayRef"),
    ("PodSpec", "ShadowPod", "spec.pod"),
    ("Quantity", "Quota", "spec.resources.[]"),
    ("ResourceQuotaSpec", "VirtualNode", "spec.resourceQuota"),
    (
        "ResourceRequirements",
        "VkOptionsTemplate",
        "spec.resources",
    ),
    ("ServiceSpec", "IP", "spec.serviceTemplate.spec"),
    ("Taint", "VirtualNode", "spec.taints.[]"),
    (
        "Toleration",
        "VirtualNode",
        "spec.offloadingPatch.tolerations.[]",
    ),
    ("Affinity", "ShadowPod", "spec.pod.affinity"),
    ("Container", "ShadowPod", "spec.pod.containers.[]"),
    (
        "EnvFromSource",
        "ShadowPod",
        "spec.pod.containers.[].envFrom.[]",
    ),
    ("EnvVar", "ShadowPod", "spec.pod.containers.[].env.[]"),
    (
        "EphemeralContainer",
        "ShadowPod",
        "spec.pod.ephemeralContainers.[]",
    ),
    (
        "KeyToPath",
        "ShadowPod",
        "spec.pod.volumes.[].configMap.items",
    ),
    (
        "LabelSelector",
        "VirtualNode",
        "spec.template.spec.selector",
    ),
    ("Lifecycle", "ShadowPod", "spec.pod.containers.[].lifecycle"),
    (
        "LifecycleHandler",
        "ShadowPod",
        "spec.pod.containers.[].lifecycle.preStop",
    ),
    ("PodAffinity", "ShadowPod", "spec.pod.affinity.podAffinity"),
    ("Probe", "ShadowPod", "spec.pod.containers.[].livenessProbe"),
    (
        "SecurityContext",
        "ShadowPod",
        "spec.pod.containers.[].securityContext",
    ),
    ("Volume", "ShadowPod", "spec.pod.volumes.[]"),
];

/// Returns the content of `control/api/src/schema/kubernetes.json`.
///
/// # Errors
///
/// Returns an error if `upstream` is not JSON or lacks the field of a type.
pub(super) fn derive(upstream: &str) -> Result<String> {
    let upstream: Value = serde_json::from_str(upstream).context("upstream.json is not JSON")?;
    let mut schemas = Vec::new();
    for (name, kind, path) in TYPES {
        let schema = field(&upstream[kind], path)
            .with_context(|| format!("upstream's {kind} has no field {path}"))?;
        schemas.push((*name, schema));
    }
    let entries = schemas
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), parts_as_references(schema, &schemas)))
        .collect();

    Ok(lines(&entries))
}

/// Returns a JSON object with one line for each entry.
pub(super) fn lines(entries: &Map<String, Value>) -> String {
    let mut lines: Vec<_> = entries
        .iter()
        .map(|(name, value)| format!(" {}: {value}", json!(name)))
        .collect();
    lines.sort();

    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Returns the schema of the field at `path` in a definition.
fn field<'a>(definition: &'a Value, path: &str) -> Option<&'a Value> {
    let root = definition.pointer("/versions/0/schema/openAPIV3Schema")?;
    path.split('.').try_fold(root, |schema, name| match name {
        "[]" => schema
            .get("items")
            .or_else(|| schema.get("additionalProperties")),
        name => schema.get("properties")?.get(name),
    })
}

/// Returns a schema in which `{"$ref": name}` replaces each part that is one of `schemas`.
fn parts_as_references(schema: &Value, schemas: &[(&str, &Value)]) -> Value {
    let shorten = |part: &Value| {
        let known = schemas.iter().find(|(_, schema)| *schema == part);
        known.map_or_else(
            || parts_as_references(part, schemas),
            |(name, _)| json!({"$ref": name}),
        )
    };
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, part)| (key.clone(), shorten(part)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(shorten).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_a_type_of_its_own_becomes_a_reference() {
        let port = json!({"type": "integer"});
        let ports = json!({"properties": {"a": {"type": "array", "items": port}}});

        let short = parts_as_references(&ports, &[("Ports", &ports), ("Port", &port)]);

        let expected = json!({"properties": {"a": {"type": "array", "items": {"$ref": "Port"}}}});
        assert_eq!(short, expected);
    }

    #[test]
    fn a_path_goes_through_lists_and_maps() {
        let schema = json!({"properties": {"spec": {"properties": {
            "list": {"items": {"properties": {"a": {"type": "string"}}}},
            "map": {"additionalProperties": {"type": "integer"}},
        }}}});
        let definition = json!({"versions": [{"schema": {"openAPIV3Schema": schema}}]});

        let of = |path| field(&definition, path).map(|it| it["type"].clone());

        assert_eq!(of("spec.list.[].a"), Some(json!("string")));
        assert_eq!(of("spec.map.[]"), Some(json!("integer")));
        assert_eq!(of("spec.list.[].b"), None);
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = derive("{}").unwrap_err();

        assert!(
            error
                .to_string()
                .contains("VirtualNode has no field spec.images")
        );
    }
}
