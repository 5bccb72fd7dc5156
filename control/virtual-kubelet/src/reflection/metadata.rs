//! Labels and annotations of reflected objects.

use super::peering::Peering;
use control_api::{annotations, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// Returns the name, labels and annotations of the reflected object.
pub(super) fn reflected(local: &ObjectMeta, peering: &Peering) -> ObjectMeta {
    ObjectMeta {
        name: local.name.clone(),
        labels: Some(reflected_labels(local.labels.iter().flatten(), peering)),
        annotations: local
            .annotations
            .as_ref()
            .map(|it| reflected_annotations(it, peering))
            .filter(|it| !it.is_empty()),
        ..ObjectMeta::default()
    }
}

/// Returns the labels of the reflected object.
pub(super) fn reflected_labels<'a>(
    local: impl IntoIterator<Item = (&'a String, &'a String)>,
    peering: &Peering,
) -> BTreeMap<String, String> {
    // The label of the virtual node marks objects of its pods.
    let is_reflected =
        |key: &str| key != labels::NODE_NAME && !peering.labels_not_reflected.contains(key);
    let kept = local.into_iter().filter(|(key, _)| is_reflected(key));
    let mut labels: BTreeMap<_, _> = kept.map(|(key, it)| (key.clone(), it.clone())).collect();
    // Last, so that no setting removes the labels by which the virtual kubelet finds its objects.
    let markers = peering.markers().into_iter();
    labels.extend(markers.map(|(key, value)| (key.to_owned(), value.to_owned())));

    labels
}

/// Returns the annotations of the reflected object, or their digests. That of `kubectl apply` is about the object of this cluster,
/// and may contain what is not reflected.
pub(super) fn reflected_annotations<V: Clone>(
    local: &BTreeMap<String, V>,
    peering: &Peering,
) -> BTreeMap<String, V> {
    let is_reflected = |key: &String| {
        key != annotations::LAST_APPLIED && !peering.annotations_not_reflected.contains(key)
    };
    let kept = local.iter().filter(|(key, _)| is_reflected(key));
    kept.map(|(key, it)| (key.clone(), it.clone())).collect()
}
