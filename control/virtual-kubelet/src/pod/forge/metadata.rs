//! Labels and annotations of a ShadowPod.

use super::context::Context;
use control_api::offloading::virtual_node::OffloadingPatch;
use control_api::{annotations, labels};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// Labels with a meaning in this cluster only, or that the provider's webhook sets.
const NEVER_REFLECTED: [&str; 3] = [
    labels::SHADOW_POD,
    labels::REMOTE_UNAVAILABLE,
    labels::CREATOR_USER,
];

/// Annotations that only a provider or a virtual kubelet sets, and that of `kubectl apply`, which is about the pod of this cluster.
const NEVER_REFLECTED_ANNOTATIONS: [&str; 4] = [
    annotations::APPLIES_CHANGES,
    annotations::CHANGE_REFUSED,
    annotations::LAST_APPLIED,
    annotations::POD_UID,
];

/// Labels and annotations of a ShadowPod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// The pod's labels that are reflected, and the markers.
    pub(crate) labels: BTreeMap<String, String>,
    /// The pod's annotations that are reflected.
    pub(crate) annotations: BTreeMap<String, String>,
}

/// Returns the labels and annotations of a pod's ShadowPod.
///
/// The provider adds the label `liqo.io/creator-user`, which an update must keep.
pub(crate) fn metadata(pod: &Pod, context: &Context<'_>) -> Metadata {
    let mut labels = reflected_labels(pod, context.patch);
    // Last, so that neither the pod nor the patch removes the labels by which the virtual kubelet finds its objects.
    labels.extend(
        [
            (labels::ORIGIN, context.origin),
            (labels::DESTINATION, context.destination),
            (labels::NODE_NAME, context.node_name),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );

    let mut annotations = pod.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| {
        !NEVER_REFLECTED_ANNOTATIONS.contains(&key.as_str())
            && !context.patch.annotations_not_reflected.contains(key)
    });
    let uid = pod.metadata.uid.clone();
    annotations.extend(uid.map(|uid| (annotations::POD_UID.to_owned(), uid)));

    Metadata {
        labels,
        annotations,
    }
}

/// Returns the labels of a pod that are reflected.
pub(super) fn reflected_labels(pod: &Pod, patch: &OffloadingPatch) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| {
        !NEVER_REFLECTED.contains(&key.as_str()) && !patch.labels_not_reflected.contains(key)
    });
    labels
}
