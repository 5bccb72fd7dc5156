//! The fields of a ShadowPod that may change, which are those of a pod that may.

use super::review::{Operation, Request, Response};
use serde_json::{Map, Value};

/// Fields of a pod's spec that may change.
const OF_POD: [&str; 2] = ["activeDeadlineSeconds", "tolerations"];

/// List of a pod's spec that may be extended.
const EPHEMERAL_CONTAINERS: &str = "ephemeralContainers";

/// Lists of containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Fields of a container that may change.
const OF_CONTAINER: [&str; 1] = ["image"];

/// Resources of a container that a resize may change. Upstream's providers refuse it.
const RESIZED: [&str; 2] = ["cpu", "memory"];

/// Refuses an update that changes other fields of the pod.
pub(super) fn validate(request: &Request) -> Response {
    if request.operation != Operation::Update {
        return Response::allow();
    }
    let [old, new] = [&request.old_object, &request.object].map(|it| &it["spec"]);
    let difference = difference(&fixed(old), &fixed(new)).or_else(|| removed(old, new));
    match difference {
        None => Response::allow(),
        Some(path) => Response::deny(format!(
            "spec{path} of the ShadowPod has changed: of spec.pod, only images and the resources cpu and memory of containers, \
             activeDeadlineSeconds and tolerations may change, and ephemeralContainers may be added: create a new pod instead"
        )),
    }
}

/// Returns a spec without the fields that may change.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(pod) = spec.get_mut("pod").and_then(Value::as_object_mut) {
        pod.retain(|name, _| !OF_POD.contains(&name.as_str()) && name != EPHEMERAL_CONTAINERS);
        for list in CONTAINERS {
            let containers = pod.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.retain(|name, _| !OF_CONTAINER.contains(&name.as_str()));
                    prune_resources(container);
                }
            }
        }
    }

    spec
}

/// Removes the amounts that a resize may change, and maps that are empty then.
fn prune_resources(container: &mut Map<String, Value>) {
    let Some(resources) = container
        .get_mut("resources")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    for amounts in ["requests", "limits"] {
        if let Some(amounts) = resources.get_mut(amounts).and_then(Value::as_object_mut) {
            amounts.retain(|name, _| !RESIZED.contains(&name.as_str()));
        }
    }
    resources.retain(|_, value| value.as_object().is_none_or(|it| !it.is_empty()));
    if resources.is_empty() {
        container.remove("resources");
    }
}

/// Returns the path of the first ephemeral container that an update removes or changes, which Kubernetes refuses.
fn removed(old: &Value, new: &Value) -> Option<String> {
    let list = |spec: &Value| spec["pod"][EPHEMERAL_CONTAINERS].as_array().cloned();
    let (old, new) = (list(old)?, list(new).unwrap_or_default());
    let position = old.iter().position(|it| !new.contains(it))?;

    Some(format!(".pod.{EPHEMERAL_CONTAINERS}[{position}]"))
}

/// Returns the path of the first difference; `None` if there is none. Fields that are `null` count as absent.
fn difference(old: &Value, new: &Value) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names = old.keys().chain(new.keys());
            names.into_iter().find_map(|name| {
                let [old, new] =
                    [old, new].map(|it: &Map<_, _>| it.get(name).unwrap_or(&Value::Null));
                difference(old, new).map(|path| format!(".{name}{path}"))
            })
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let mut pairs = old.iter().zip(new).enumerate();
            pairs.find_map(|(index, (old, new))| {
                difference(old, new).map(|path| format!("[{index}]{path}"))
            })
        }
        _ => (old != new).then(String::new),
    }
}
