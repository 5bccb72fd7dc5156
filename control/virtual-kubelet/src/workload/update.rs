//! Changes of an existing ShadowPod: labels and annotations, ephemeral containers, and resizes.
//!
//! Upstream's providers refuse a change of resources, and ignore ephemeral containers. Whether a provider applies them is known from
//! its pod: the controller manager of this project sets the annotation [`annotations::APPLIES_CHANGES`] there, where a consumer may
//! not write. The annotation is never reflected from a pod of this cluster, so a user cannot pretend it for another provider, whose
//! pods have the annotations of their ShadowPods. Before the provider has created its pod, nothing is changed or reported.

use crate::pod::forge::{self, Change, Context, Metadata};
use crate::pod::kept::KeptShadowPod;
use crate::pod::status::cut;
use control_api::{annotations, labels};
use control_runtime::merge_patch;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Longest report of a provider that is published, in bytes. The note of an Event has 1,024.
const REFUSAL_LEN_MAX: usize = 512;

/// The difference between a ShadowPod and its pod.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Update {
    /// Merge patch of the ShadowPod; none if nothing differs.
    pub(super) patch: Option<Value>,
    /// Whether the patch contains the spec, which another change could have changed meanwhile.
    pub(super) has_spec: bool,
    /// Report of a change that the provider does not apply, or has refused.
    pub(super) note: Option<String>,
}

/// Returns whether a ShadowPod is that of a former pod with the same name, which was replaced while nothing followed it. Those of
/// earlier releases do not name their pod.
pub(super) fn is_of_former(local: &Pod, shadow: &KeptShadowPod) -> bool {
    let annotations = shadow.metadata.annotations.as_ref();
    let uid = annotations.and_then(|it| it.get(annotations::POD_UID));

    uid.is_some_and(|uid| local.metadata.uid.as_ref() != Some(uid))
}

/// Compares a ShadowPod with its pod. `remote` is the provider's pod.
pub(super) fn update(
    local: &Pod,
    shadow: &KeptShadowPod,
    remote: Option<&Pod>,
    context: &Context<'_>,
) -> Update {
    let mut patch = json!({});
    if let Some(metadata) = metadata(local, shadow, context) {
        patch["metadata"] = metadata;
    }
    let context = Context {
        applies_changes: remote.is_some_and(applies_changes),
        ..*context
    };
    let spec = remote.and_then(|_| shadow.spec());
    let change = spec
        .as_ref()
        .and_then(|spec| forge::change(local, spec, &context));
    let mut update = Update::default();
    if let (Some(change), Some(old)) = (change, spec) {
        match &change.spec {
            Some(new) => {
                let difference = merge_patch(&json!({"pod": old}), &json!({"pod": new}));
                update.has_spec = difference.is_some();
                if let Some(difference) = difference {
                    patch["spec"] = difference;
                }
            }
            None => update.note = Some(not_applied(&change)),
        }
    }
    if update.note.is_none() {
        update.note = remote.and_then(refusal);
    }
    update.patch = Some(patch).filter(|it| *it != json!({}));

    update
}

/// Returns the merge patch of labels and annotations. The label with the creator stays as it is.
fn metadata(local: &Pod, shadow: &KeptShadowPod, context: &Context<'_>) -> Option<Value> {
    let Metadata {
        mut labels,
        annotations,
    } = forge::metadata(local, context);
    let present = shadow.metadata.labels.clone().unwrap_or_default();
    labels.remove(labels::CREATOR_USER);
    let creator = present.get(labels::CREATOR_USER);
    labels.extend(creator.map(|it| (labels::CREATOR_USER.to_owned(), it.clone())));
    let old = json!({
        "labels": present,
        "annotations": shadow.metadata.annotations.clone().unwrap_or_default(),
    });

    merge_patch(&old, &json!({"labels": labels, "annotations": annotations}))
}

/// Returns whether the provider of a pod applies ephemeral containers and resizes.
fn applies_changes(remote: &Pod) -> bool {
    let annotations = remote.metadata.annotations.as_ref();
    annotations
        .and_then(|it| it.get(annotations::APPLIES_CHANGES))
        .is_some_and(|it| it == "true")
}

/// Returns the provider's report of a change that it has refused.
fn refusal(remote: &Pod) -> Option<String> {
    let annotations = remote.metadata.annotations.as_ref()?;
    let message = annotations.get(annotations::CHANGE_REFUSED)?;
    let message = cut(message, REFUSAL_LEN_MAX);

    Some(format!(
        "the provider refuses the change of the pod: {message}"
    ))
}

fn not_applied(change: &Change) -> String {
    let mut parts = Vec::new();
    if !change.ephemeral_containers.is_empty() {
        let names = change.ephemeral_containers.join(", ");
        parts.push(format!("does not start ephemeral containers ({names})"));
    }
    if !change.resized.is_empty() {
        let names = change.resized.join(", ");
        parts.push(format!("does not resize containers ({names})"));
    }

    format!(
        "the provider {}: create a new pod, or update the Liqo of the provider",
        parts.join(" and ")
    )
}
