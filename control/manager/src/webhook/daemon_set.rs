//! DaemonSets: their pods stay off virtual nodes, which have no node of their own to serve.

use super::affinity;
use super::patch::Patch;
use super::review::{Operation, Request, Response};
use control_api::{annotations, labels};
use serde_json::{Value, json};

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
    let annotations = &object["metadata"]["annotations"];
    let pod = &object["spec"]["template"]["spec"];
    if !is_changed
        || annotations[annotations::ALLOW_VIRTUAL_NODES] == "true"
        || names_node_type(pod)
        || !pod.is_object()
    {
        return Response::allow();
    }
    let absent = affinity::of_virtual_nodes("DoesNotExist");
    let terms: Vec<_> = match affinity::terms(pod) {
        Some(terms) => {
            let terms = terms.iter().cloned();
            let with = |term| affinity::with_expression(term, absent.clone());
            terms.map(with).collect()
        }
        None => vec![json!({"matchExpressions": [absent]})],
    };
    let mut patch = Patch::default();
    if affinity::terms(pod) != Some(&terms) {
        let path = [&["spec", "template", "spec"], affinity::TERMS.as_slice()].concat();
        patch.set(object, &path, terms.into());
    }

    patch.into()
}

/// Returns whether a pod selects nodes by the label of virtual nodes.
fn names_node_type(pod: &Value) -> bool {
    let affinity = &pod["affinity"]["nodeAffinity"];
    let preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
    let preferred = preferred.into_iter().flatten().map(|it| &it["preference"]);
    let required = affinity::terms(pod).into_iter().flatten();
    let mut expressions = required
        .chain(preferred)
        .filter_map(|term| term["matchExpressions"].as_array())
        .flatten();

    pod["nodeSelector"].get(labels::NODE_TYPE).is_some()
        || expressions.any(|it| it["key"] == labels::NODE_TYPE)
}
