//! Decodes an object of a file, and validates its fields by the schema of its kind.
//!
//! The API server validates by the same schema, so a file is invalid if and only if the API server would
//! reject its objects.

use super::error::Problem;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::schema::{OptionalEnum, OptionalIntOrString, StructuralSchemaRewriter};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use schemars::transform::AddNullable;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::LazyLock;

/// Handling of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strictness {
    /// Unknown fields are errors.
    Strict,
    /// Unknown fields are errors at the top level and in the metadata only, because each release of Kubernetes
    /// adds fields to its kinds.
    Lenient,
}

/// Path of a field, and its problem.
type Finding = (String, Problem);

/// Decodes an object from `value`.
///
/// # Errors
///
/// Returns all violations of the schema.
pub(super) fn object<T: DeserializeOwned>(
    mut value: Value,
    schema: &Value,
    strictness: Strictness,
) -> Result<T, Vec<Finding>> {
    remove_nulls(&mut value);
    let mut checker = Checker {
        strictness,
        findings: Vec::new(),
    };
    checker.root(&value, schema);
    if !checker.findings.is_empty() {
        return Err(checker.findings);
    }

    serde_json::from_value(value).map_err(|error| {
        let message = error.to_string();
        vec![(String::new(), Problem::Malformed { message })]
    })
}

/// Removes fields with the value null: `kubectl` prints them, and they are equivalent to absent fields.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the schema of a kind of this project.
pub(super) fn schema<T: JsonSchema>() -> Value {
    SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(AddNullable::default())
        .with_transform(StructuralSchemaRewriter)
        .with_transform(OptionalEnum)
        .with_transform(OptionalIntOrString)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Returns the schema of a kind of Kubernetes.
pub(super) fn kubernetes_schema(kind: &str) -> Value {
    control_api::schema::kubernetes(kind)
        .expect("control-api has the schema of each kind of a fabric")
}

static METADATA: LazyLock<Value> = LazyLock::new(|| kubernetes_schema("ObjectMeta"));

struct Checker {
    strictness: Strictness,
    findings: Vec<Finding>,
}

impl Checker {
    fn root(&mut self, value: &Value, schema: &Value) {
        let Value::Object(fields) = value else {
            return;
        };
        let own = ["apiVersion", "kind", "metadata"];
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, value) in fields {
            match properties.and_then(|properties| properties.get(key)) {
                _ if own.contains(&key.as_str()) => {}
                Some(schema) => self.value(value, schema, key),
                None => self.unknown(key.clone(), properties, &own),
            }
        }
        self.required(fields, schema, "");
        if let Some(metadata) = fields.get("metadata") {
            let strictness = std::mem::replace(&mut self.strictness, Strictness::Strict);
            self.value(metadata, &METADATA, "metadata");
            self.strictness = strictness;
        }
    }

    fn value(&mut self, value: &Value, schema: &Value, path: &str) {
        if let Some(expected) = schema.get("type").and_then(Value::as_str)
            && !has_type(value, expected)
        {
            let found = type_of(value);
            let problem = match type_name(expected) {
                Some(expected) => Problem::WrongType { expected, found },
                None => Problem::NotAString { found },
            };
            self.findings.push((path.to_owned(), problem));
            return;
        }

        match value {
            Value::Object(fields) => self.fields(fields, schema, path),
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for (index, item) in items.iter().enumerate() {
                        self.value(item, schema, &format!("{path}[{index}]"));
                    }
                }
            }
            Value::Number(_) | Value::String(_) => self.scalar(value, schema, path),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn fields(&mut self, fields: &Map<String, Value>, schema: &Value, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties");
        let is_open = properties.is_none() || self.strictness == Strictness::Lenient;
        for (key, value) in fields {
            let path = format!("{path}.{key}");
            match properties.and_then(|properties| properties.get(key)) {
                Some(schema) => self.value(value, schema, &path),
                None => match additional {
                    Some(schema) if schema.is_object() => self.value(value, schema, &path),
                    Some(_) | None if is_open => {}
                    Some(_) | None => self.unknown(path, properties, &[]),
                },
            }
        }
        self.required(fields, schema, path);
    }

    fn required(&mut self, fields: &Map<String, Value>, schema: &Value, path: &str) {
        let required = schema.get("required").and_then(Value::as_array);
        for key in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(key) {
                let path = if path.is_empty() {
                    key.to_owned()
                } else {
                    format!("{path}.{key}")
                };
                self.findings.push((path, Problem::MissingField));
            }
        }
    }

    fn scalar(&mut self, value: &Value, schema: &Value, path: &str) {
        let problem = match (value, schema.get("format").and_then(Value::as_str)) {
            (_, Some("byte")) => malformed::<ByteString>(value),
            (_, Some("date-time")) => malformed::<Time>(value),
            _ => None,
        };
        let allowed = schema.get("enum").and_then(Value::as_array);
        let not_one_of = allowed
            .filter(|allowed| !allowed.contains(value))
            .map(|allowed| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                Problem::NotOneOf {
                    value: text(value),
                    allowed: allowed.iter().map(text).collect(),
                }
            });
        let minimum = schema.get("minimum").and_then(Value::as_f64);
        let below = value
            .as_i64()
            .zip(minimum.map(|minimum| minimum as i64))
            .filter(|(value, minimum)| value < minimum)
            .map(|(value, minimum)| Problem::BelowMinimum { value, minimum });

        let findings = [problem, not_one_of, below].into_iter().flatten();
        self.findings
            .extend(findings.map(|problem| (path.to_owned(), problem)));
    }

    fn unknown(&mut self, path: String, known: Option<&Map<String, Value>>, more: &[&str]) {
        let known = known.into_iter().flat_map(Map::keys).map(String::as_str);
        let known = more
            .iter()
            .copied()
            .chain(known)
            .map(str::to_owned)
            .collect();
        self.findings.push((path, Problem::UnknownField { known }));
    }
}

fn malformed<T: DeserializeOwned>(value: &Value) -> Option<Problem> {
    let error = serde_json::from_value::<T>(value.clone()).err()?;
    let message = error.to_string();

    Some(Problem::Malformed { message })
}

fn has_type(value: &Value, expected: &str) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

/// Returns the name of a type in messages; `None` for a string, whose message has another remedy.
fn type_name(expected: &str) -> Option<&'static str> {
    match expected {
        "object" => Some("a mapping"),
        "array" => Some("a list"),
        "boolean" => Some("true or false"),
        "integer" => Some("an integer"),
        "string" => None,
        _ => Some("a number"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
