//! Parts of objects: those that a write changes, and those by which a watch selects; the numbers of a seed.

use super::fields::merge;
use crate::controller::{Action, Write};
use control_client::object::Key;
use control_client::watch::WatchId;
use serde_json::{Value, json};

/// Restricts the body of a write to the fields of its subresource, or to all but the status.
pub(super) fn scope(body: &mut Value, old: &Value, write: &Write) {
    let is_update = matches!(write.action, Action::Update(_));
    if let Some("ephemeralcontainers" | "resize") = write.subresource {
        body["spec"] = spec_of_pod(&body["spec"], &old["spec"]);
        if let Some(body) = body.as_object_mut() {
            body.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind" | "spec"));
        }
    } else if write.subresource.is_some() {
        let status = body.get_mut("status").map(Value::take);
        // As kube-apiserver: the subresource of a pod's status changes its labels, too.
        let labels = match write.object.resource.kind.as_ref() {
            "Pod" => body["metadata"]["labels"].take(),
            _ => Value::Null,
        };
        if is_update {
            *body = old.clone();
        } else if let Some(body) = body.as_object_mut() {
            body.retain(|field, _| matches!(field.as_str(), "apiVersion" | "kind"));
        }
        if status.is_some() || is_update {
            body["status"] = status.unwrap_or_default();
        }
        if !labels.is_null() {
            body["metadata"]["labels"] = labels;
        }
    } else if let Some(members) = body.as_object_mut() {
        members.remove("status");
        if is_update && !old["status"].is_null() {
            body["status"] = old["status"].clone();
        }
    }
}

/// Returns the lists of containers that an Apply changes, with the containers of the pod that it does not name.
fn spec_of_pod(applied: &Value, old: &Value) -> Value {
    let mut spec = json!({});
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let Some(applied) = applied[list].as_array() else {
            continue;
        };
        let mut containers = old[list].as_array().cloned().unwrap_or_default();
        for container in applied {
            match containers
                .iter_mut()
                .find(|it| it["name"] == container["name"])
            {
                Some(present) => merge(present, container),
                None => containers.push(container.clone()),
            }
        }
        spec[list] = containers.into();
    }

    spec
}

pub(super) fn is_selected(id: &WatchId, labels: &Value, object: &Value) -> bool {
    let labels = serde_json::from_value(labels.clone()).unwrap_or_default();
    let node = id.selector.node.as_deref();
    let is_of_node = node.is_none_or(|node| object["spec"]["nodeName"] == node);
    let mut terms = id.selector.terms.split(',').filter(|it| !it.is_empty());
    let has_fields = terms.all(|term| {
        let (path, value) = term.split_once('=').unwrap_or((term, ""));
        let pointer = format!("/{}", path.replace('.', "/"));
        object.pointer(&pointer).is_some_and(|it| it == value)
    });

    id.selector.selects(&labels) && is_of_node && has_fields
}

pub(super) fn key(object: &Value) -> Key {
    Key::new(text(object, "namespace"), text(object, "name"))
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Mixes the bits of a counter (SplitMix64).
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
