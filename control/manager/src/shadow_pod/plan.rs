//! The Pod of one ShadowPod.

use super::objects::{Local, User, has_ended, is_own};
use super::policy::{self, PolicyError, SPEC_LEN_MAX};
use super::quota::{self, Claim};
use super::requirement;
use super::settings::Settings;
use crate::authentication::{controller_reference, label, warn};
use control_api::annotations::LAST_APPLIED;
use control_api::offloading::quota::LimitsEnforcement;
use control_api::offloading::shadow_pod::ShadowPodPhase as Phase;
use control_api::requests::{self, Amounts};
use control_api::{ShadowPod, labels};
use control_runtime::{Action, Cluster, Event, Key, Plan, Ref, Write};
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Reason of the Event about a ShadowPod whose Pod cannot be created, as upstream's.
const FAILED: &str = "FailedCreatePod";

/// Plans the Pod and the status of a ShadowPod.
pub(super) fn plan(local: &Local<'_>, settings: &Settings, key: &Key) -> Plan<Key> {
    let mut plan = Plan::default();
    let Some(shadow) = local.shadow_pods.get(key) else {
        return plan;
    };
    if shadow.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let object = Ref::of::<ShadowPod>(&Cluster::Local, key);
    let pod = local.pods.get(key);
    if let Some(pod) = pod {
        if is_own(pod, shadow) {
            follow(key, shadow, pod, &mut plan);
        } else {
            let note = format!(
                "pod {key} exists and is not of this ShadowPod: the consumer needs another name, or the provider deletes the pod"
            );
            warn(&mut plan, object, (FAILED, note));
        }
        return plan;
    }
    if has_completed(shadow) {
        return plan;
    }
    match check(local, settings, (key, shadow)) {
        Ok(spec) => {
            let pod = Ref::of::<Pod>(&Cluster::Local, key);
            let create = Action::Create(created(shadow, spec));
            plan.writes.push(Write::new(pod, create));
        }
        Err(note) => warn(&mut plan, object, (FAILED, note)),
    }

    plan
}

/// Returns the spec of the Pod.
///
/// # Errors
///
/// Returns why there may be none, with the remedy.
fn check<'a>(
    local: &Local<'a>,
    settings: &Settings,
    (key, shadow): (&Key, &'a ShadowPod),
) -> Result<&'a PodSpec, String> {
    let Some((peer, _)) = local.consumer(&key.namespace) else {
        return Err(format!(
            "namespace {} was not created for a consumer: request one by a NamespaceMap",
            key.namespace
        ));
    };
    let origin = label(&shadow.metadata, labels::ORIGIN);
    if origin != Some(peer) {
        return Err(format!(
            "label {} is `{}`, and the namespace is of `{peer}`: use the namespace of the consumer",
            labels::ORIGIN,
            origin.unwrap_or_default()
        ));
    }
    let spec = shadow.spec.pod.as_ref().ok_or(PolicyError::Missing);
    let spec = spec.map_err(|error| error.to_string())?;
    let policy = local.policy(peer).map(|it| &it.spec);
    policy::check(spec, policy).map_err(|error| error.to_string())?;
    let len = json!(spec).to_string().len();
    if len > SPEC_LEN_MAX {
        return Err(PolicyError::TooLong(len).to_string());
    }
    if settings.enforces_resources {
        check_quota(local, shadow, spec)?;
    }

    Ok(spec)
}

fn check_quota(local: &Local<'_>, shadow: &ShadowPod, spec: &PodSpec) -> Result<(), String> {
    let Some(user) = local.user(shadow) else {
        return Err(format!(
            "label {} is missing, which the webhook of this cluster sets: create the ShadowPod again",
            labels::CREATOR_USER
        ));
    };
    let Some(quota) = local.quota(&user) else {
        return Err(format!(
            "user `{}` has no Quota: the consumer needs a ResourceSlice that this cluster has accepted, and its credentials",
            user.creator
        ));
    };
    let mode = quota
        .spec
        .limits_enforcement
        .unwrap_or(LimitsEnforcement::None);
    let required = match mode {
        LimitsEnforcement::None => None,
        LimitsEnforcement::Soft => requirement::missing(spec, false),
        LimitsEnforcement::Hard => requirement::missing(spec, true),
    };
    if let Some(message) = required {
        return Err(message);
    }
    requests::of_pod(spec).map_err(|error| error.to_string())?;
    // It was admitted before, and its place is kept: neither a cordon nor other pods take it.
    if shadow.status.is_some() {
        return Ok(());
    }
    let uid = shadow.metadata.uid.as_deref().unwrap_or_default();

    quota::check(quota, &claims(local, &user), uid).map_err(|error| error.to_string())
}

/// Returns the claims of a user: those of its pods that have not ended, and of its ShadowPods without a pod.
fn claims<'a>(local: &Local<'a>, user: &User<'_>) -> Vec<Claim<'a>> {
    let mut claims = Vec::new();
    for (key, shadow) in local.shadow_pods_of(user) {
        let pod = local.pods.get(key).filter(|pod| is_own(pod, shadow));
        let is_over = pod.map_or_else(|| has_completed(shadow), has_ended);
        if is_over || pod.is_none() && shadow.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let amounts = shadow.spec.pod.as_ref().map(requests::of_pod);
        claims.push(Claim {
            is_present: pod.is_some() || shadow.status.is_some(),
            created: shadow.metadata.creation_timestamp.as_ref().map(|it| it.0),
            uid: shadow.metadata.uid.as_deref().unwrap_or_default(),
            // An invalid one is refused, so it takes nothing.
            amounts: amounts.and_then(Result::ok).unwrap_or_else(Amounts::new),
        });
    }

    claims
}

/// Plans the labels and annotations of a present Pod, and the phase of its ShadowPod.
fn follow(key: &Key, shadow: &ShadowPod, pod: &Pod, plan: &mut Plan<Key>) {
    let (labels, annotations) = metadata(shadow);
    let (old_labels, old_annotations) = (&pod.metadata.labels, &pod.metadata.annotations);
    let is_same =
        contains(old_labels.as_ref(), &labels) && contains(old_annotations.as_ref(), &annotations);
    if !is_same && pod.metadata.deletion_timestamp.is_none() {
        let object = Ref::of::<Pod>(&Cluster::Local, key);
        plan.apply(
            object,
            json!({"metadata": {"labels": labels, "annotations": annotations}}),
        );
    }
    let phase = phase(pod);
    if shadow.status.as_ref().map(|it| it.phase) != Some(phase) {
        let object = Ref::of::<ShadowPod>(&Cluster::Local, key);
        let merge = Action::Merge(json!({"status": {"phase": phase}}));
        let mut write = Write::new(object, merge).subresource("status");
        write.uid.clone_from(&shadow.metadata.uid);
        plan.writes.push(write);
    }
    if shadow.status.is_none() {
        plan.events.push(Event {
            object: Ref::of::<ShadowPod>(&Cluster::Local, key),
            is_warning: false,
            reason: "CreatedPod",
            note: format!("created pod {key}"),
            is_repeated: false,
        });
    }
}

fn created(shadow: &ShadowPod, spec: &PodSpec) -> Value {
    let (labels, annotations) = metadata(shadow);
    let name = shadow.metadata.name.as_deref();
    let namespace = shadow.metadata.namespace.as_deref();

    json!({
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [controller_reference(shadow)],
        },
        "spec": spec,
    })
}

type Map = BTreeMap<String, String>;

/// Returns the labels and annotations of the Pod.
fn metadata(shadow: &ShadowPod) -> (Map, Map) {
    let mut labels = shadow.metadata.labels.clone().unwrap_or_default();
    labels.insert(
        labels::MANAGED_BY.to_owned(),
        labels::MANAGED_BY_SHADOW_POD.to_owned(),
    );
    let mut annotations = shadow.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_APPLIED);

    (labels, annotations)
}

fn contains(present: Option<&Map>, desired: &Map) -> bool {
    desired
        .iter()
        .all(|(key, value)| present.and_then(|it| it.get(key)) == Some(value))
}

fn phase(pod: &Pod) -> Phase {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    match phase {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Pending") | None => Phase::Pending,
        Some(_) => Phase::Unknown,
    }
}

/// Returns whether the Pod of a ShadowPod has ended, so that it is not created again.
fn has_completed(shadow: &ShadowPod) -> bool {
    let phase = shadow.status.as_ref().map(|it| it.phase);
    matches!(phase, Some(Phase::Succeeded | Phase::Failed))
}
