//! Schemas of fields that serde's types alone do not describe as Liqo's CRDs do.

use crate::offloading::namespace_offloading::RemoteNamespaceCondition;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Schemas of Kubernetes' types by name, without descriptions. `{"$ref": name}` stands for another entry.
static KUBERNETES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("schema/kubernetes.json")).expect("the file is a JSON object")
});

/// Returns the schema of a type of Kubernetes, such as `ObjectMeta`, with all its parts in place.
///
/// The API types' generated schemas are not used: they have descriptions, which take two thirds of a
/// definition, and no list types, without which server-side apply replaces whole lists.
pub fn kubernetes(name: &str) -> Option<Value> {
    KUBERNETES.get(name).map(resolve)
}

pub(crate) fn resolve(value: &Value) -> Value {
    match value {
        Value::Object(fields) => match fields.get("$ref") {
            Some(Value::String(name)) => kubernetes(name).expect("each reference has an entry"),
            _ => Value::Object(
                fields
                    .iter()
                    .map(|(key, value)| (key.clone(), resolve(value)))
                    .collect(),
            ),
        },
        Value::Array(items) => Value::Array(items.iter().map(resolve).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Defines functions that return the schema of a type of Kubernetes, of a list, or of a map of it.
macro_rules! kubernetes {
    ($($function:ident = $type:literal in $shape:ident;)*) => {
        $(pub(crate) fn $function(_: &mut SchemaGenerator) -> Schema {
            $shape(kubernetes($type).expect("the type has an entry"))
        })*
    };
}

kubernetes! {
    reference = "ObjectReference" in single;
    local_reference = "LocalObjectReference" in single;
    local_references = "LocalObjectReference" in list;
    quantities = "Quantity" in map;
    pod_spec = "PodSpec" in single;
    service_spec = "ServiceSpec" in single;
    deployment_spec = "DeploymentSpec" in single;
    node_selector = "NodeSelector" in single;
    node_affinity = "NodeAffinity" in single;
    tolerations = "Toleration" in list;
    taints = "Taint" in list;
    container_images = "ContainerImage" in list;
    resource_quota_spec = "ResourceQuotaSpec" in single;
    resource_requirements = "ResourceRequirements" in single;
    endpoints = "Endpoint" in list;
    endpoint_ports = "EndpointPort" in list;
}

fn single(schema: Value) -> Schema {
    schema.try_into().expect("a schema is an object")
}

fn list(items: Value) -> Schema {
    json_schema!({"type": "array", "items": items})
}

fn map(values: Value) -> Schema {
    json_schema!({"type": "object", "additionalProperties": values})
}

/// Of the conditions of remote namespaces, by cluster ID.
pub(crate) fn remote_namespaces_conditions(generator: &mut SchemaGenerator) -> Schema {
    let items = generator.subschema_for::<RemoteNamespaceCondition>();
    json_schema!({"type": "object", "additionalProperties": {
        "type": "array",
        "items": items,
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    }})
}

/// Removes from a definition what the generator adds to Liqo's: `nullable`, and defaults of the whole `spec`
/// and `status`.
pub(crate) fn normalize(definition: &mut CustomResourceDefinition) {
    for version in &mut definition.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|it| it.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        for part in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
            part.default = None;
        }
        remove_nullable(schema);
    }
}

fn remove_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for property in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
        remove_nullable(property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        remove_nullable(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        remove_nullable(items);
    }
}

/// Of a string that holds a CIDR.
pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "cidr"})
}

/// Of a list of strings that hold a CIDR each.
pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "cidr"}})
}

/// Of a string that holds an IPv4 address.
pub(crate) fn ipv4(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "ipv4"})
}

/// Of a text, which an absent field does not make null.
pub(crate) fn string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Of bytes, base64 in a string.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Of an integer of Go's type `int`.
pub(crate) fn int(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer"})
}

/// Of an integer of Go's type `int32`.
pub(crate) fn int32(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32"})
}

/// Of a time.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Of an API version and a kind.
pub(crate) fn object_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
    })
}

/// Of an object of which nothing is known.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Of a list of [`Condition`](k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition)s.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string",
                    "maxLength": 1024,
                    "minLength": 1,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {
                    "type": "string",
                    "maxLength": 316,
                    "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        },
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-list-type": "map",
    })
}
