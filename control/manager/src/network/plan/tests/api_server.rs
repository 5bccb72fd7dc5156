//! Behaviour of an API server: selectors of watches, server-side apply, defaults of Services.

use super::cluster::settings;
use crate::network::controller::registration;
use crate::network::kind::{Key, Kind};
use crate::network::write::{Action, Write};
use fake_apiserver::merged;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// Checks that the manager's registrations declare the right to a write.
pub(super) fn assert_right(write: &Write) {
    let is_declared = match write.action {
        Action::Create(_) => write.kind.verbs().contains(&"create"),
        Action::Apply(_) => ["create", "patch"]
            .iter()
            .all(|verb| write.kind.verbs().contains(verb)),
        Action::Merge(_) => write.kind.verbs().contains(&"patch"),
        Action::Status(_) | Action::PruneStatus(_) => {
            write.kind.subresources().contains(&("status", "patch"))
        }
        Action::Delete(_) => write.kind.verbs().contains(&"delete"),
    };
    assert!(is_declared, "no registration declares {write:?}");
    if let Action::Apply(object) | Action::Status(object) = &write.action {
        let registration = registration(write.kind, &settings());
        assert_eq!(registration.undeclared(object), None, "{write:?}");
    }
}

/// Returns an object after a server-side apply by the only field manager.
pub(super) fn applied(kind: Kind, mut base: Value, object: Value) -> Value {
    // Server-side apply removes fields that its field manager set before.
    base["metadata"]["annotations"] = json!({});
    // A selector is atomic.
    base["spec"]["selector"].take();
    let ports = base["spec"]["ports"].clone();
    let mut object = merged(base, object);
    let is_other = |port: &Value| port["port"] != object["spec"]["ports"][0]["port"];
    if kind == Kind::Service && ports.as_array().iter().any(|it| it.iter().any(is_other)) {
        // The other ports are kept and have the same name.
        panic!("spec.ports[1].name: Duplicate value: {ports}");
    }
    // Server-side apply keeps fields of other field managers in a port of the same number.
    if object["spec"]["ports"][0]["port"] == ports[0]["port"] && kind == Kind::Service {
        object["spec"]["ports"][0] = merged(ports[0].clone(), object["spec"]["ports"][0].clone());
    }

    object
}

/// Returns whether the watch of a kind reports an object.
pub(super) fn is_watched(kind: Kind, object: &Value) -> bool {
    let selector = kind.selector().unwrap_or_default();
    let terms = selector.split(',').filter(|term| !term.is_empty());
    terms
        .filter_map(|term| term.split_once('='))
        .all(|(name, value)| object["metadata"]["labels"][name] == value)
}

pub(super) fn key_in(object: &Value) -> Key {
    let object: DynamicObject =
        serde_json::from_value(json!({"metadata": object["metadata"]})).unwrap();
    control_runtime::key_of(&object.metadata)
}

pub(super) fn complete_service(service: &mut Value, counter: u64) {
    let spec = &mut service["spec"];
    if !spec.is_object() {
        return;
    }
    if spec["clusterIPs"].is_null() {
        spec["clusterIPs"] = json!([format!("10.96.0.{}", counter % 250)]);
    }
    let type_ = spec["type"].as_str().unwrap_or("ClusterIP").to_owned();
    let ports = spec["ports"].as_array_mut().into_iter().flatten();
    for port in ports.filter(|port| port.is_object()) {
        if type_ != "ClusterIP" && port["nodePort"].is_null() {
            port["nodePort"] = json!(30000 + counter % 2000);
        }
    }
}
