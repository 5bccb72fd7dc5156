//! Labels and annotations of a ShadowPod.

use super::context::Context;
use control_api::offloading::virtual_node::OffloadingPatch;
use control_api::{annotations, labels};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;

/// Labels with a meaning in this cluster only, or about the user who creates the ShadowPod.
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

/// Maximum length of the value of a label, in bytes.
const LABEL_LEN_MAX: usize = 63;

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
/// The label `liqo.io/creator-user` names the user who creates the ShadowPod. If it does, the provider's API server does not call the
/// webhook that sets it. It is missing if the name is no value of a label.
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
    let creator = context.creator.filter(|it| is_label_value(it));
    labels.extend(creator.map(|it| (labels::CREATOR_USER.to_owned(), it.to_owned())));

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

/// Returns whether a text is a value of a label that is not empty.
fn is_label_value(text: &str) -> bool {
    let is_inner = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);

    text.len() <= LABEL_LEN_MAX
        && text.starts_with(|it: char| it.is_ascii_alphanumeric())
        && text.ends_with(|it: char| it.is_ascii_alphanumeric())
        && text.chars().all(is_inner)
}

/// Returns the labels of a pod that are reflected.
pub(super) fn reflected_labels(pod: &Pod, patch: &OffloadingPatch) -> BTreeMap<String, String> {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.retain(|key, _| {
        !NEVER_REFLECTED.contains(&key.as_str()) && !patch.labels_not_reflected.contains(key)
    });
    labels
}
