//! Schemas of fields whose Rust types do not yield the schema of Liqo's definitions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// Schemas of Kubernetes' types by name, without descriptions. `{"$ref": name}` stands for another entry.
///
/// `cargo xtask crds` derives `kubernetes.json`, the types that Liqo's kinds embed, from upstream's definitions.
/// `kinds.json` is written by hand from Kubernetes' API reference: the kinds that a fabric file may contain, with
/// the fields that a fabric uses, and all fields of `ObjectMeta`.
static KUBERNETES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let entries = |text: &str| -> Map<String, Value> {
        serde_json::from_str(text).expect("the file is a JSON object")
    };
    let mut all = entries(include_str!("schema/kubernetes.json"));
    all.append(&mut entries(include_str!("schema/kinds.json")));

    all
});

/// Returns the schema of a type of Kubernetes, such as `ObjectMeta`, with all references resolved.
///
/// The schemas that `k8s-openapi` generates are not used: they have descriptions, which take two thirds of a
/// definition, and no list types, without which server-side apply replaces whole lists.
pub fn kubernetes(name: &str) -> Option<Value> {
    KUBERNETES.get(name).map(resolve)
}

fn resolve(value: &Value) -> Value {
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

/// Adapts a definition to Liqo's: removes `nullable` and the defaults of the whole `spec` and `status`, which the
/// generator adds, and restores the types of fields that are an integer or a string, which it removes.
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
        normalize_schema(schema);
    }
}

fn normalize_schema(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.x_kubernetes_int_or_string == Some(true) {
        schema.type_ = None;
        schema.any_of = Some(["integer", "string"].map(of_type).to_vec());
    }
    for property in schema.properties.iter_mut().flat_map(|it| it.values_mut()) {
        normalize_schema(property);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        normalize_schema(values);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        normalize_schema(items);
    }
}

/// Adds a pattern of the objects' names to a definition.
pub(crate) fn with_name(
    mut definition: CustomResourceDefinition,
    pattern: &str,
) -> CustomResourceDefinition {
    let name = JSONSchemaProps {
        pattern: Some(pattern.to_owned()),
        ..of_type("string")
    };
    let metadata = JSONSchemaProps {
        properties: Some([("name".to_owned(), name)].into()),
        ..of_type("object")
    };
    for version in &mut definition.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|it| it.open_api_v3_schema.as_mut()) {
            let properties = schema.properties.get_or_insert_default();
            properties.insert("metadata".to_owned(), metadata.clone());
        }
    }

    definition
}

fn of_type(type_: &str) -> JSONSchemaProps {
    JSONSchemaProps {
        type_: Some(type_.to_owned()),
        ..JSONSchemaProps::default()
    }
}

/// Returns the schema of a CIDR.
pub(crate) fn cidr(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "cidr"})
}

/// Returns the schema of a list of CIDRs.
pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "cidr"}})
}

/// Largest number of entries in a list or map of a policy.
const POLICY_ENTRIES_MAX: u32 = 256;

/// Returns the schema of a set of strings of a policy.
fn policy_strings(items: Value) -> Schema {
    json_schema!({
        "type": "array",
        "items": items,
        "maxItems": POLICY_ENTRIES_MAX,
        "x-kubernetes-list-type": "set",
    })
}

/// Returns the schema of a list of CIDRs, each once.
pub(crate) fn some_cidrs(_: &mut SchemaGenerator) -> Schema {
    policy_strings(json!({"type": "string", "format": "cidr"}))
}

/// Returns the schema of a list of names of objects.
pub(crate) fn object_names(_: &mut SchemaGenerator) -> Schema {
    policy_strings(json!({
        "type": "string",
        "maxLength": 253,
        "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    }))
}

/// Returns the schema of a list of names of namespaces, in which `*` stands for any characters.
pub(crate) fn name_globs(_: &mut SchemaGenerator) -> Schema {
    policy_strings(json!({"type": "string", "maxLength": 63, "pattern": "^[-a-z0-9*]+$"}))
}

/// Returns the schema of a list of names of hosts, in which `*` stands for any characters.
pub(crate) fn host_globs(_: &mut SchemaGenerator) -> Schema {
    policy_strings(json!({"type": "string", "maxLength": 253, "pattern": r"^[-a-z0-9.*]+$"}))
}

/// Returns the schema of a list of types of Services.
pub(crate) fn service_types(_: &mut SchemaGenerator) -> Schema {
    let types = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"];
    policy_strings(json!({"type": "string", "enum": types}))
}

/// Returns the schema of a number of objects.
pub(crate) fn object_count(_: &mut SchemaGenerator) -> Schema {
    single(count())
}

/// Returns the schema of a map of numbers of objects.
pub(crate) fn object_counts(_: &mut SchemaGenerator) -> Schema {
    let mut schema = map(count());
    schema.insert("maxProperties".to_owned(), POLICY_ENTRIES_MAX.into());
    schema
}

fn count() -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0})
}

/// Returns the schema of a map of quantities that are not negative.
pub(crate) fn positive_quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": POLICY_ENTRIES_MAX,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 32,
            "minimum": 0,
            "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]{1,2})?$",
            "x-kubernetes-int-or-string": true,
        },
    })
}

/// Returns the schema of an IPv4 address.
pub(crate) fn ipv4(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "ipv4"})
}

/// Returns the schema of a string that is not nullable.
pub(crate) fn string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Returns the schema of bytes, which JSON contains in base64.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Returns the schema of an integer of Go's type `int`.
pub(crate) fn int(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer"})
}

/// Returns the schema of an integer of Go's type `int32`.
pub(crate) fn int32(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int32"})
}

/// Returns the schema of a time in RFC 3339.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// Returns the schema of an object with an API version and a kind.
pub(crate) fn object_kind(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}},
    })
}

/// Returns the schema of an object with any fields.
pub(crate) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema of a list of [`Condition`](k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition)s, one of each type.
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
