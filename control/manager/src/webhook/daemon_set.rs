//! DaemonSets: their pods stay off virtual nodes, which have no node of their own to serve.

use super::patch::Patch;
use super::review::{Operation, Request, Response};
use control_api::daemon_set;
use serde_json::Value;

/// Adds the absence of the label of virtual nodes to the required node affinity of the pods.
///
/// A change of the template restarts the pods on all nodes, so an update is changed only if it changes the template
/// itself.
pub(super) fn mutate(request: &Request) -> Response {
    let (object, old) = (&request.object, &request.old_object);
    let template = |object: &Value| object["spec"]["template"].clone();
    let is_changed = match request.operation {
        Operation::Create => true,
        Operation::Update => template(object) != template(old),
        Operation::Delete | Operation::Connect => false,
    };
    if !is_changed {
        return Response::allow();
    }
    let mut patch = Patch::default();
    if let Some(terms) = daemon_set::terms_without_virtual_nodes(object) {
        patch.set(object, &daemon_set::TERMS_PATH, terms.into());
    }

    patch.into()
}
