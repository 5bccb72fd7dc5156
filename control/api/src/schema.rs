//! Schemas of fields that serde's types alone do not describe as Liqo's CRDs do.

use schemars::{Schema, SchemaGenerator, json_schema};

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

/// Of a [`LocalObjectReference`](k8s_openapi::api::core::v1::LocalObjectReference).
pub(crate) fn local_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {"name": {"type": "string", "default": ""}},
        "x-kubernetes-map-type": "atomic",
    })
}

/// Of an [`ObjectReference`](k8s_openapi::api::core::v1::ObjectReference).
pub(crate) fn reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "fieldPath": {"type": "string"},
            "kind": {"type": "string"},
            "name": {"type": "string"},
            "namespace": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "uid": {"type": "string"},
        },
        "x-kubernetes-map-type": "atomic",
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
