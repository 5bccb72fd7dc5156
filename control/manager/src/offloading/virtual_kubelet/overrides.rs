//! Values of a `spec.template` that a user has written, which replace those of the options.
//!
//! The controller fills `spec.template` too. So it records a digest of each value that it has filled in an annotation: a
//! value with another digest is the user's. An upgrade of the VkOptionsTemplate replaces the controller's own values only.

use super::image;
use control_api::VirtualNode;
use control_api::annotations::TEMPLATE_VALUES;
use control_credentials::digest;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Name of the container of the virtual kubelet.
pub(super) const CONTAINER: &str = "virtual-kubelet";

/// Digits of a digest in the annotation. A user who chooses a value with the same digits only loses the own value.
const DIGITS: usize = 16;

/// The values that a user may set, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Overrides(BTreeMap<&'static str, Value>);

/// Names of the values, and where they are in the template.
const FIELDS: [(&str, &str); 4] = [
    ("labels", "/metadata/labels"),
    ("annotations", "/metadata/annotations"),
    ("podLabels", "/spec/template/metadata/labels"),
    ("podAnnotations", "/spec/template/metadata/annotations"),
];

/// Names of the values of the container.
const CONTAINER_FIELDS: [&str; 2] = ["image", "resources"];

/// Names of the values that are flags.
pub(super) const FLAGS: [&str; 4] = [
    "node-extra-annotations",
    "node-extra-labels",
    "metrics-enabled",
    "metrics-address",
];

impl Overrides {
    /// Returns the values of the `spec.template` of a VirtualNode that differ from those in `filled`, and are not recorded as
    /// the controller's.
    pub(super) fn of(node: &VirtualNode, filled: &Value) -> Self {
        let template = serde_json::to_value(&node.spec.template).unwrap_or_default();
        let record = record_of(node);
        let own = values(filled);
        let mut values = values(&template);
        values.retain(|name, value| {
            record.get(name).copied() != Some(short(value).as_str()) && own.get(name) != Some(value)
        });
        // Without a record, an installation of upstream's has filled the template.
        let is_replaced = |values: &BTreeMap<_, Value>| {
            let of_upstream =
                |image: Option<&Value>| image.and_then(Value::as_str).map(image::is_upstream);
            of_upstream(values.get("image")) == Some(true)
                && of_upstream(own.get("image")) == Some(false)
        };
        if record.is_empty() && is_replaced(&values) {
            values.remove("image");
        }

        Self(values)
    }

    /// Returns a value as a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Puts the values that are not flags into a template. Entries of maps are added to those of the template, but
    /// those of `fixed` labels stay.
    pub(super) fn put(&self, template: &mut Value, fixed: &Value) {
        for (name, path) in FIELDS {
            let Some(Value::Object(entries)) = self.0.get(name) else {
                continue;
            };
            let (parent, field) = path.rsplit_once('/').unwrap_or_default();
            let Some(parent) = template.pointer_mut(parent) else {
                continue;
            };
            for (key, value) in entries {
                if fixed.get(key).is_none() {
                    parent[field][key.as_str()] = value.clone();
                }
            }
        }
        let container = &mut template["spec"]["template"]["spec"]["containers"][0];
        for name in CONTAINER_FIELDS {
            if let Some(value) = self.0.get(name) {
                container[name] = value.clone();
            }
        }
    }
}

/// Returns the value of the annotation that records the values of a template.
pub(super) fn record(filled: &Value) -> String {
    let values = values(filled);
    let entries = values.iter();
    let entries = entries.map(|(name, value)| format!("{name}={}", short(value)));

    entries.collect::<Vec<_>>().join(",")
}

fn record_of(node: &VirtualNode) -> BTreeMap<&str, &str> {
    let annotations = node.metadata.annotations.as_ref();
    let record = annotations.and_then(|it| it.get(TEMPLATE_VALUES));
    let entries = record.iter().flat_map(|it| it.split(','));

    entries.filter_map(|entry| entry.split_once('=')).collect()
}

/// Returns the values of a template that are not empty.
fn values(template: &Value) -> BTreeMap<&'static str, Value> {
    let containers = template.pointer("/spec/template/spec/containers");
    let mut containers = containers.and_then(Value::as_array).into_iter().flatten();
    let container = containers.find(|it| it["name"] == CONTAINER);
    let container = container.unwrap_or(&Value::Null);
    let of_template = FIELDS.map(|(name, path)| (name, template.pointer(path).cloned()));
    let of_container = CONTAINER_FIELDS.map(|name| (name, container.get(name).cloned()));
    let arguments = container["args"].as_array().into_iter().flatten();
    let arguments: Vec<_> = arguments.filter_map(Value::as_str).collect();
    let of_flags = FLAGS.map(|name| {
        let mut values = arguments.iter().filter_map(|argument| {
            let flag = argument.strip_prefix("--")?.strip_prefix(name)?;
            flag.strip_prefix('=')
        });
        (name, values.next().map(|value| json!(value)))
    });
    let all = of_template.into_iter().chain(of_container).chain(of_flags);
    let given = all.filter_map(|(name, value)| Some((name, value?)));

    given.filter(|(_, value)| !is_empty(value)).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn short(value: &Value) -> String {
    let mut digest = digest(&[value.to_string().as_bytes()]);
    digest.truncate(DIGITS);

    digest
}
