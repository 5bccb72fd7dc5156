//! Affinity of the remote pod.

use super::metadata;
use control_api::annotations;
use control_api::offloading::virtual_node::OffloadingPatch;
use k8s_openapi::api::core::v1::{
    Affinity, Pod, PodAffinityTerm, PodAntiAffinity, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::collections::BTreeMap;

/// Topology of the presets `soft` and `hard`.
const TOPOLOGY: &str = "kubernetes.io/hostname";

/// Weight of the preset `soft`.
const WEIGHT: i32 = 1;

/// Labels that differ between the pods of one workload.
const POD_SPECIFIC: [&str; 3] = [
    "controller-revision-hash",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];

/// Returns the affinity of the remote pod: the node affinity of the patch, and the preset of the pod.
///
/// The pod's own affinity is about the nodes of this cluster.
pub(super) fn affinity(pod: &Pod, patch: &OffloadingPatch) -> Option<Affinity> {
    let node_affinity = patch
        .affinity
        .as_ref()
        .and_then(|it| it.node_affinity.clone());
    let pod_anti_affinity = anti_affinity(pod, patch);
    if node_affinity.is_none() && pod_anti_affinity.is_none() {
        return None;
    }

    Some(Affinity {
        node_affinity,
        pod_affinity: None,
        pod_anti_affinity,
    })
}

fn anti_affinity(pod: &Pod, patch: &OffloadingPatch) -> Option<PodAntiAffinity> {
    let annotations = pod.metadata.annotations.as_ref()?;
    match annotations.get(annotations::ANTI_AFFINITY_PRESET)?.as_str() {
        "propagate" => pod
            .spec
            .as_ref()?
            .affinity
            .as_ref()?
            .pod_anti_affinity
            .clone(),
        "soft" => Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![
                WeightedPodAffinityTerm {
                    pod_affinity_term: term(pod, patch)?,
                    weight: WEIGHT,
                },
            ]),
            required_during_scheduling_ignored_during_execution: None,
        }),
        "hard" => Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: None,
            required_during_scheduling_ignored_during_execution: Some(vec![term(pod, patch)?]),
        }),
        _ => None,
    }
}

/// Returns the term that selects the pods with the same labels; none if there are no labels to compare, because an
/// empty selector selects every pod of the namespace.
fn term(pod: &Pod, patch: &OffloadingPatch) -> Option<PodAffinityTerm> {
    let match_labels = compared_labels(pod, patch);
    let selector = LabelSelector {
        match_expressions: None,
        match_labels: Some(match_labels),
    };
    let has_labels = selector
        .match_labels
        .as_ref()
        .is_some_and(|it| !it.is_empty());

    has_labels.then(|| PodAffinityTerm {
        label_selector: Some(selector),
        topology_key: TOPOLOGY.to_owned(),
        ..PodAffinityTerm::default()
    })
}

fn compared_labels(pod: &Pod, patch: &OffloadingPatch) -> BTreeMap<String, String> {
    let mut labels = metadata::reflected_labels(pod, patch);
    let annotations = pod.metadata.annotations.as_ref();
    match annotations.and_then(|it| it.get(annotations::ANTI_AFFINITY_LABELS)) {
        Some(list) => {
            let keys: Vec<_> = list.split(',').map(str::trim).collect();
            labels.retain(|key, _| keys.contains(&key.as_str()));
        }
        None => labels.retain(|key, _| !POD_SPECIFIC.contains(&key.as_str())),
    }
    labels
}
