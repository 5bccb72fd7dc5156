//! Pods in offloaded namespaces: which nodes may run them.

use super::affinity;
use super::patch::Patch;
use super::repatriation::{self, Repatriation};
use super::review::{Operation, Request, Response};
use control_api::offloading::namespace_offloading::PodOffloadingStrategy as Strategy;
use control_api::{NamespaceOffloading, annotations, node_affinity, taints};
use control_runtime::{Cache, Key};
use serde_json::{Value, json};

/// The only name of a NamespaceOffloading.
const OFFLOADING: &str = "offloading";

/// RuntimeClass whose own node selector and toleration select virtual nodes.
const RUNTIME_CLASS: &str = "liqo";

/// Limits a new pod to the nodes that the NamespaceOffloading of its namespace selects.
pub(super) fn mutate(request: &Request, cache: &Cache, default_seconds: i64) -> Response {
    if request.operation != Operation::Create {
        return Response::allow();
    }
    let key = Key::new(&*request.namespace, OFFLOADING);
    let Some(offloading) = cache.local::<NamespaceOffloading>(&key) else {
        return Response::deny(format!(
            "namespace {namespace} has the label liqo.io/scheduling-enabled and no NamespaceOffloading `{OFFLOADING}`: \
             run `liqoctl offload namespace {namespace}`, or remove the label",
            namespace = request.namespace
        ));
    };
    let strategy = offloading.spec.pod_offloading_strategy.unwrap_or_default();
    // Pods that replace remote ones while offloading ends must not wait for virtual nodes.
    if strategy == Strategy::Local || offloading.metadata.deletion_timestamp.is_some() {
        return Response::allow();
    }
    let spec = &request.object["spec"];
    let tolerations = spec["tolerations"].as_array();
    let mut desired = tolerations.cloned().unwrap_or_default();
    let mut patch = Patch::default();
    if spec["runtimeClassName"] != RUNTIME_CLASS {
        let imposed = imposed(strategy, offloading);
        if !imposed.is_empty() {
            let present = node_affinity::terms(spec);
            match affinity::both(present.map(Vec::as_slice), &imposed) {
                Ok(terms) if present != Some(&terms) => {
                    let path = [&["spec"], node_affinity::TERMS.as_slice()].concat();
                    patch.set(&request.object, &path, terms.into());
                }
                Ok(_) => {}
                Err(error) => {
                    return Response::deny(format!(
                        "spec.affinity.nodeAffinity of the pod and spec.clusterSelector of NamespaceOffloading {key}: {error}"
                    ));
                }
            }
        }
        tolerate_virtual_nodes(&mut desired);
    }
    let (repatriation, warning) = repatriation(offloading);
    repatriation::apply(repatriation, default_seconds, &mut desired);
    if tolerations.map_or(&[][..], Vec::as_slice) != desired {
        patch.set(&request.object, &["spec", "tolerations"], desired.into());
    }

    let mut response = Response::from(patch);
    response.warnings.extend(warning);
    response
}

/// Returns the terms of which a node must match one; none if every node is allowed.
fn imposed(strategy: Strategy, offloading: &NamespaceOffloading) -> Vec<Value> {
    let selector = offloading.spec.cluster_selector.as_ref();
    let terms = selector.map_or(&[][..], |it| it.node_selector_terms.as_slice());
    let mut terms: Vec<_> = terms.iter().map(|term| json!(term)).collect();
    let only = |operator| json!({"matchExpressions": [node_affinity::of_virtual_nodes(operator)]});
    match strategy {
        Strategy::Local => terms.clear(),
        Strategy::Remote if terms.is_empty() => terms.push(only("In")),
        Strategy::Remote => {
            let required = node_affinity::of_virtual_nodes("In");
            let with = |term| node_affinity::with_expression(term, required.clone());
            terms = terms.into_iter().map(with).collect();
        }
        Strategy::LocalAndRemote if terms.is_empty() => {}
        Strategy::LocalAndRemote => terms.push(only("NotIn")),
    }

    terms
}

fn tolerate_virtual_nodes(tolerations: &mut Vec<Value>) {
    let toleration =
        json!({"key": taints::NOT_ALLOWED, "operator": "Exists", "effect": "NoExecute"});
    if !tolerations.contains(&toleration) {
        tolerations.push(toleration);
    }
}

/// Returns the requested repatriation, and a warning if the annotation is invalid.
fn repatriation(offloading: &NamespaceOffloading) -> (Option<Repatriation>, Option<String>) {
    let annotations = offloading.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|it| it.get(annotations::REPATRIATION)) else {
        return (None, None);
    };
    match text.parse() {
        Ok(repatriation) => (Some(repatriation), None),
        Err(error) => (
            None,
            Some(format!(
                "annotation {} is ignored: {error}",
                annotations::REPATRIATION
            )),
        ),
    }
}
