//! The pod of a ShadowPod: its content, and how labels and annotations follow.

use super::change::annotations_of;
use super::kept::{KeptShadowPod, METADATA_LEN_MAX, Texts};
use crate::shadow_endpoint_slice::Mapping;
use control_api::offloading::shadow_pod::ShadowPodPhase;
use control_api::{ShadowPod, labels};
use control_runtime::Key;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Labels by which clusters mark their own pods that run elsewhere.
const LOCAL_LABELS: [&str; 2] = [labels::SHADOW_POD, labels::REMOTE_UNAVAILABLE];

/// Prefixes of annotations that have an effect at the creation of a pod only.
const FIXED_ANNOTATIONS: [&str; 2] = [
    "kubernetes.io/config.",
    "container.apparmor.security.beta.kubernetes.io/",
];

/// Keys of labels and annotations that were removed from a ShadowPod, and that its pod may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    labels: BTreeSet<String>,
    annotations: BTreeSet<String>,
}

impl Removed {
    /// Adds the keys that a change of a ShadowPod removes. `pod` is its pod as the cache has it.
    ///
    /// The consumer can remove any number of keys one after another, so those that the pod has not are dropped if there are more than
    /// a ShadowPod may have.
    pub(super) fn add(&mut self, before: &KeptShadowPod, after: &KeptShadowPod, pod: Option<&Pod>) {
        let changes = [
            (&mut self.labels, &before.labels, &after.labels),
            (
                &mut self.annotations,
                &before.annotations,
                &after.annotations,
            ),
        ];
        for (removed, before, after) in changes {
            let gone = before.keys().filter(|key| !after.contains_key(*key));
            removed.extend(gone.cloned());
            removed.retain(|key| !after.contains_key(key));
        }
        let length = |keys: &BTreeSet<String>| keys.iter().map(String::len).sum::<usize>();
        if length(&self.labels) + length(&self.annotations) > METADATA_LEN_MAX {
            let metadata = pod.map(|it| &it.metadata);
            let has =
                |texts: Option<&Texts>, key: &str| texts.is_some_and(|it| it.contains_key(key));
            let labels = metadata.and_then(|it| it.labels.as_ref());
            self.labels.retain(|key| has(labels, key));
            let annotations = metadata.and_then(|it| it.annotations.as_ref());
            self.annotations.retain(|key| has(annotations, key));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// Returns the pod of a ShadowPod with this spec. `mapping` translates the address of the consumer's API server
/// in host aliases.
pub(super) fn desired(
    key: &Key,
    shadow_pod: &KeptShadowPod,
    spec: &PodSpec,
    mapping: Option<&Mapping>,
) -> Value {
    let mut spec = spec.clone();
    if let (Some(mapping), Some(aliases)) = (mapping, &mut spec.host_aliases) {
        *aliases = mapping.host_aliases(aliases);
    }
    // The API server accepts them by a subresource only, once the pod exists.
    spec.ephemeral_containers = None;

    json!({
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": desired_labels(&shadow_pod.labels),
            "annotations": desired_annotations(&shadow_pod.annotations, None),
            "ownerReferences": [{
                "apiVersion": ShadowPod::api_version(&()),
                "kind": ShadowPod::kind(&()),
                "name": key.name,
                "uid": shadow_pod.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

fn desired_labels(of_shadow_pod: &Texts) -> Texts {
    let mut all = of_shadow_pod.clone();
    all.retain(|key, _| !LOCAL_LABELS.contains(&key.as_str()));
    let managed_by = labels::MANAGED_BY_SHADOW_POD.to_owned();
    all.insert(labels::MANAGED_BY.to_owned(), managed_by);

    all
}

/// Returns the annotations of the pod. A consumer cannot set those by which the manager reports about changes.
fn desired_annotations(of_shadow_pod: &Texts, refusal: Option<&str>) -> Texts {
    let mut all = of_shadow_pod.clone();
    for (key, value) in annotations_of(refusal) {
        all.remove(key);
        all.extend(value.map(|value| (key.to_owned(), value)));
    }

    all
}

/// Returns the merge patch after which the pod has labels and annotations of its ShadowPod; `None` if it has them. `refusal` is
/// the reason why the last change of the ShadowPod is not applied.
///
/// Labels and annotations of others, for example of admission webhooks, stay. The creator is that of the pod's creation, which
/// the pod counts against.
pub(super) fn follow(
    shadow_pod: &KeptShadowPod,
    pod: &Pod,
    removed: &Removed,
    refusal: Option<&str>,
) -> Option<Value> {
    let none = Texts::new();
    let metadata = &pod.metadata;
    let desired = desired_labels(&shadow_pod.labels);
    let labels = changes(
        metadata.labels.as_ref().unwrap_or(&none),
        &desired,
        &removed.labels,
        |key| key == labels::CREATOR_USER,
    );
    let unset = annotations_of(refusal).into_iter();
    let unset = unset.filter(|(_, value)| value.is_none());
    let mut removed_annotations = removed.annotations.clone();
    removed_annotations.extend(unset.map(|(key, _)| key.to_owned()));
    let annotations = changes(
        metadata.annotations.as_ref().unwrap_or(&none),
        &desired_annotations(&shadow_pod.annotations, refusal),
        &removed_annotations,
        |key| {
            FIXED_ANNOTATIONS
                .iter()
                .any(|prefix| key.starts_with(prefix))
        },
    );
    let fields = [("labels", labels), ("annotations", annotations)];
    let fields = fields.into_iter().filter(|(_, fields)| !fields.is_empty());
    let changed: Map<_, _> = fields
        .map(|(name, it)| (name.to_owned(), it.into()))
        .collect();

    (!changed.is_empty()).then(|| json!({"metadata": changed}))
}

fn changes(
    present: &Texts,
    desired: &Texts,
    removed: &BTreeSet<String>,
    is_fixed: impl Fn(&str) -> bool,
) -> Map<String, Value> {
    let is_changed = |(key, value): &(&String, &String)| present.get(*key) != Some(*value);
    let set = desired.iter().filter(is_changed);
    let set = set.map(|(key, value)| (key.clone(), value.as_str().into()));
    let gone = removed
        .iter()
        .filter(|key| present.contains_key(*key) && !desired.contains_key(*key));
    let all = gone.map(|key| (key.clone(), Value::Null)).chain(set);

    all.filter(|(key, _)| !is_fixed(key)).collect()
}

/// Returns the phase of a pod; `None` if it has none yet.
pub(super) fn phase(pod: &Pod) -> Option<ShadowPodPhase> {
    let phase = pod.status.as_ref()?.phase.as_deref()?;
    serde_json::from_value(phase.into()).ok()
}

/// Returns the UID of the ShadowPod that controls a pod.
pub(crate) fn owner(metadata: &ObjectMeta) -> Option<&str> {
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;

    is_shadow_pod(owner).then_some(owner.uid.as_str())
}

fn is_shadow_pod(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    group == Some(&*ShadowPod::group(&())) && owner.kind == ShadowPod::kind(&())
}

#[cfg(test)]
mod tests {
    use super::super::kept::keep;
    use super::*;

    fn shadow_pod(keys: &[String]) -> KeptShadowPod {
        let annotations: Texts = keys.iter().map(|it| (it.clone(), String::new())).collect();
        let metadata = json!({"name": "a", "namespace": "b", "annotations": annotations});
        let object = json!({"metadata": metadata, "spec": {"pod": {"containers": []}}});
        keep(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_removed_keys_of_a_shadow_pod_are_bounded_and_those_of_its_pod_stay() {
        let own = "a".repeat(1000);
        let pod = json!({"metadata": {"annotations": {&own: ""}}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let none = shadow_pod(&[]);
        let mut removed = Removed::default();
        removed.add(&shadow_pod(std::slice::from_ref(&own)), &none, Some(&pod));

        for number in 0..1000 {
            let keys = [format!("{number:01000}")];
            removed.add(&shadow_pod(&keys), &none, Some(&pod));
            let length: usize = removed.annotations.iter().map(String::len).sum();
            assert!(length <= METADATA_LEN_MAX);
        }
        assert!(removed.annotations.contains(&own));

        let back = shadow_pod(std::slice::from_ref(&own));
        removed.add(&none, &back, Some(&pod));
        assert!(!removed.annotations.contains(&own));
    }
}
