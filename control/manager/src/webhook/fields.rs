//! The fields of a ShadowPod that may change, which are those of a pod that may.

use super::review::{Operation, Request, Response};
use serde_json::{Map, Value};

/// Fields of a pod's spec that may change.
const OF_POD: [&str; 3] = [
    "activeDeadlineSeconds",
    "tolerations",
    "ephemeralContainers",
];

/// Lists of containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// Fields of a container that may change. Upstream's providers refuse a change of `resources`.
const OF_CONTAINER: [&str; 2] = ["image", "resources"];

/// Refuses an update that changes other fields of the pod.
pub(super) fn validate(request: &Request) -> Response {
    if request.operation != Operation::Update {
        return Response::allow();
    }
    let [old, new] = [&request.old_object, &request.object].map(|it| fixed(&it["spec"]));
    match difference(&old, &new) {
        None => Response::allow(),
        Some(path) => Response::deny(format!(
            "spec{path} of the ShadowPod has changed: of spec.pod, only images and resources of containers, \
             activeDeadlineSeconds, tolerations and ephemeralContainers may change: create a new pod instead"
        )),
    }
}

/// Returns a spec without the fields that may change.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(pod) = spec.get_mut("pod").and_then(Value::as_object_mut) {
        pod.retain(|name, _| !OF_POD.contains(&name.as_str()));
        for list in CONTAINERS {
            let containers = pod.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.retain(|name, _| !OF_CONTAINER.contains(&name.as_str()));
                }
            }
        }
    }

    spec
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
