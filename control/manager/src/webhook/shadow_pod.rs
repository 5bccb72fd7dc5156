//! The creator of a ShadowPod, whose Quota its pod counts against.

use super::creator::creator_label;
use super::patch::Patch;
use super::review::{Operation, Request, Response};
use control_api::labels;
use serde_json::Value;

/// Writes the creator into a label, which no user may choose or change.
///
/// Virtual kubelets omit the label in their updates. While resource enforcement is off, new ShadowPods have no such
/// label, also none that the user wrote, because the label counts as soon as enforcement is on.
pub(super) fn mutate(request: &Request, enforces_resources: bool) -> Response {
    let desired = match request.operation {
        Operation::Create => enforces_resources.then(|| creator_label(&request.user_info.username)),
        Operation::Update => {
            let old = creator(&request.old_object);
            // The garbage collector removes finalizers of an object whose deletion is requested.
            if enforces_resources
                && request.object["metadata"]["deletionTimestamp"].is_null()
                && let Err(message) = check(old, &request.user_info.username)
            {
                return Response::deny(message);
            }
            old.map(str::to_owned)
        }
        Operation::Delete | Operation::Connect => return Response::allow(),
    };
    let present = request.object["metadata"]["labels"].get(labels::CREATOR_USER);
    let path = ["metadata", "labels", labels::CREATOR_USER];
    let mut patch = Patch::default();
    match desired {
        Some(desired) if present.and_then(Value::as_str) == Some(&desired) => {}
        Some(desired) => patch.set(&request.object, &path, desired.into()),
        None if present.is_some() => patch.remove(&path),
        None => {}
    }

    patch.into()
}

/// Checks that the user who changes a ShadowPod has created it.
fn check(creator: Option<&str>, user: &str) -> Result<(), String> {
    match creator {
        None => Err(format!(
            "missing creator name: the ShadowPod has no label {}, because it was created while resource enforcement was \
             off: delete it, so that it is created again",
            labels::CREATOR_USER
        )),
        Some(creator) if creator == creator_label(user) => Ok(()),
        Some(creator) => Err(format!(
            "creator name cannot be modified: the ShadowPod was created by {creator}, and the request is by {user}: use \
             the credentials of its virtual node"
        )),
    }
}

fn creator(object: &Value) -> Option<&str> {
    object["metadata"]["labels"][labels::CREATOR_USER].as_str()
}
