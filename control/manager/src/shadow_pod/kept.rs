//! ShadowPods as the cache keeps them.
//!
//! A consumer may write large objects. What decisions need is computed at once, and the pod's spec is kept only until its
//! pod exists, unless it is large. It is read again where it is needed.

use super::change::Followed;
use super::demand::Demand;
use super::policy::Profile;
use crate::shadow_endpoint_slice::Mapping;
use control_api::annotations::LAST_APPLIED;
use control_api::offloading::shadow_pod::ShadowPodPhase;
use control_api::{ShadowPod, labels};
use control_runtime::{Kept, Resource};
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest spec of a pod, in bytes of JSON. The API server limits an object to 1.5 MiB, and the pod has further fields.
const SPEC_LEN_MAX: usize = 1 << 20;

/// Longest spec that is kept, in bytes of JSON.
const KEPT_LEN_MAX: usize = 64 << 10;

/// Largest labels and annotations, in bytes. Kubernetes limits annotations to 256 KiB.
pub(super) const METADATA_LEN_MAX: usize = 320 << 10;

/// Labels that decide whether a ShadowPod may have a pod.
const JUDGED: [&str; 3] = [labels::ORIGIN, labels::DESTINATION, labels::CREATOR_USER];

/// Maximum length of the value of a label.
const LABEL_LEN_MAX: usize = 63;

/// Labels or annotations.
pub(super) type Texts = BTreeMap<String, String>;

/// A ShadowPod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptShadowPod {
    pub(super) uid: String,
    pub(super) created: Option<Timestamp>,
    pub(super) is_deleting: bool,
    pub(super) labels: Texts,
    /// Annotations, without that of `kubectl apply`, which is about an object of the consumer.
    pub(super) annotations: Texts,
    /// The pod's effective request, or the error in the ShadowPod.
    pub(super) demand: Result<Arc<Demand>, String>,
    pub(super) profile: Arc<Profile>,
    /// The fields that an existing pod follows, or the error in the ShadowPod.
    pub(super) followed: Result<Arc<Followed>, String>,
    /// Whether an address in the spec is to be translated.
    pub(super) needs_mapping: bool,
    /// Spec of the pod; `None` if it is large, or if the pod has a phase.
    pub(super) spec: Option<Arc<PodSpec>>,
    pub(super) phase: Option<ShadowPodPhase>,
}

impl Kept for KeptShadowPod {
    fn resource() -> Resource {
        Resource::of::<ShadowPod>()
    }
}

impl KeptShadowPod {
    /// Returns whether the pod has ended for good.
    pub(super) fn has_ended(&self) -> bool {
        self.phase.is_some_and(is_terminal)
    }

    /// Returns whether another state of the ShadowPod is judged alike.
    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        let label = |it: &Self, key| it.labels.get(key).cloned();
        self.uid == other.uid
            && JUDGED
                .iter()
                .all(|key| label(self, *key) == label(other, *key))
            && self.demand == other.demand
            && self.profile == other.profile
            && self.needs_mapping == other.needs_mapping
    }
}

/// Returns whether a pod of this phase has ended.
pub(super) fn is_terminal(phase: ShadowPodPhase) -> bool {
    match phase {
        ShadowPodPhase::Succeeded | ShadowPodPhase::Failed => true,
        ShadowPodPhase::Pending | ShadowPodPhase::Running | ShadowPodPhase::Unknown => false,
    }
}

/// Returns what is kept of a ShadowPod.
pub(super) fn keep(shadow_pod: ShadowPod) -> KeptShadowPod {
    let metadata = shadow_pod.metadata;
    let (labels, annotations) = (metadata.labels, metadata.annotations);
    let (mut labels, mut annotations) =
        (labels.unwrap_or_default(), annotations.unwrap_or_default());
    let spec = shadow_pod.spec.pod;
    let phase = shadow_pod.status.map(|status| status.phase);
    let namespace = metadata.namespace.unwrap_or_default();
    let spec_len = spec.as_ref().map_or(0, json_len);
    let mut demand = match &spec {
        Some(_) if spec_len > SPEC_LEN_MAX => Err(format!(
            "spec.pod has {spec_len} bytes, and {SPEC_LEN_MAX} are allowed: make the pod smaller"
        )),
        Some(spec) => Demand::of(spec).map(Arc::new),
        None => Err("spec.pod is missing: name the containers".to_owned()),
    };
    annotations.remove(LAST_APPLIED);
    let profile = spec
        .as_ref()
        .map(|spec| Profile::of(&namespace, &annotations, spec));
    let followed = spec.as_ref().map(|spec| Followed::of(spec).map(Arc::new));
    let aliases = spec.as_ref().and_then(|spec| spec.host_aliases.as_deref());
    let needs_mapping = aliases.is_some_and(Mapping::concerns);
    if length(&labels) + length(&annotations) > METADATA_LEN_MAX {
        let message = format!(
            "labels and annotations are longer than {METADATA_LEN_MAX} bytes: remove some of them"
        );
        demand = Err(message);
        labels.retain(|key, value| JUDGED.contains(&key.as_str()) && value.len() <= LABEL_LEN_MAX);
        annotations.clear();
    }
    let spec = spec.filter(|_| phase.is_none() && demand.is_ok() && spec_len <= KEPT_LEN_MAX);

    KeptShadowPod {
        uid: metadata.uid.unwrap_or_default(),
        created: metadata.creation_timestamp.map(|it| it.0),
        is_deleting: metadata.deletion_timestamp.is_some(),
        labels,
        annotations,
        demand,
        profile: Arc::new(profile.unwrap_or_default()),
        followed: followed.unwrap_or_else(|| Ok(Arc::default())),
        needs_mapping,
        spec: spec.map(Arc::new),
        phase,
    }
}

fn json_len(spec: &PodSpec) -> usize {
    serde_json::to_vec(spec).map_or(usize::MAX, |json| json.len())
}

fn length(texts: &Texts) -> usize {
    texts
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum()
}
