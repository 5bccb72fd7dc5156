//! Fields by which a pod of a consumer would gain more than its slice. No policy permits them.

use super::{Annotations, Checked, Refusal};
use crate::shadow_pod::text::shown;
use k8s_openapi::api::core::v1::PodSpec;

/// The scheduler that places pods by their requests.
const SCHEDULER: &str = "default-scheduler";

/// Prefix of the annotations by which kubelets mark static pods.
const STATIC_POD: &str = "kubernetes.io/config.";

/// Checks the fields.
pub(super) fn check(annotations: &Annotations, spec: &PodSpec) -> Checked {
    if spec.node_name.as_deref().is_some_and(|it| !it.is_empty()) {
        return Err(Refusal::new(
            "spec.pod.nodeName",
            "bypasses the scheduler of the provider",
            "remove it, and select nodes by their labels",
        ));
    }
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(SCHEDULER);
    if !scheduler.is_empty() && scheduler != SCHEDULER {
        return Err(Refusal::new(
            "spec.pod.schedulerName",
            format!("is `{}`, and not `{SCHEDULER}`", shown(scheduler)),
            "remove it",
        ));
    }
    if spec.priority.is_some_and(|it| it != 0) {
        return Err(Refusal::new(
            "spec.pod.priority",
            "is a precedence that only PriorityClasses give",
            "remove it, and name a class in spec.pod.priorityClassName",
        ));
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        return Err(Refusal::new(
            "spec.pod.resourceClaims",
            "requests devices, which Quotas do not count",
            "remove it, and use extended resources",
        ));
    }
    if annotations.keys().any(|key| key.starts_with(STATIC_POD)) {
        return Err(Refusal::new(
            format!("metadata.annotations[{STATIC_POD}*]"),
            "marks a static pod",
            "remove these annotations",
        ));
    }

    Ok(())
}

/// Returns the field by which the pod gets a token or a certificate of its ServiceAccount.
pub(super) fn token(spec: &PodSpec) -> Option<String> {
    let volumes = spec.volumes.iter().flatten();
    let projected = volumes.flat_map(|volume| {
        let sources = volume.projected.iter().flat_map(|it| &it.sources).flatten();
        sources.map(move |source| (volume, source))
    });
    let mut tokens = projected.filter_map(|(volume, source)| {
        let kind = match (&source.service_account_token, &source.pod_certificate) {
            (Some(_), _) => "serviceAccountToken",
            (None, Some(_)) => "podCertificate",
            (None, None) => return None,
        };
        let name = shown(&volume.name);
        Some(format!("spec.pod.volumes[{name}].projected.sources.{kind}"))
    });
    let automount = || {
        let is_mounted = spec.automount_service_account_token != Some(false);
        is_mounted.then(|| "spec.pod.automountServiceAccountToken".to_owned())
    };

    tokens.next().or_else(automount)
}
