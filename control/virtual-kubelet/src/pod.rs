//! A pod of this cluster, and the pod at the provider that runs in its place.

use k8s_openapi::api::core::v1::Pod;

pub(crate) mod forge;
pub(crate) mod kept;
pub(crate) mod status;

/// Returns whether a pod of this cluster is bound to a Node.
pub(crate) fn is_bound(pod: &Pod, node: &str) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|it| it.node_name.as_deref() == Some(node))
}

/// Returns whether the containers of a pod have ended for good, so that its status stays.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests;
