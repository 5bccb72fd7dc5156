//! Fields by which a pod of a consumer would reach or disturb other parts of the cluster, although Kubernetes' `baseline`
//! permits them.

use super::{Checked, Refusal};
use crate::shadow_pod::text::shown;
use k8s_openapi::api::core::v1::{PodAffinityTerm, PodSpec, Volume};

/// Taints of nodes that consumers do not use: those of the control plane, and virtual nodes, which are resources of
/// other clusters.
const TAINTS: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "virtual-node.liqo.io/not-allowed",
];

/// Checks the fields.
pub(super) fn check(namespace: &str, spec: &PodSpec) -> Checked {
    check_tolerations(spec)?;
    check_affinity(namespace, spec)?;
    let mut volumes = spec.volumes.iter().flatten();
    volumes.try_for_each(check_volume)
}

fn check_tolerations(spec: &PodSpec) -> Checked {
    for (number, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let key = toleration.key.as_deref().unwrap_or_default();
        let cause = if key.is_empty() {
            "tolerates every taint".to_owned()
        } else if TAINTS.contains(&key) {
            format!("tolerates the taint {key}")
        } else {
            continue;
        };
        return Err(refusal(
            format!("spec.pod.tolerations[{number}]"),
            cause,
            "name the keys of other taints",
        ));
    }

    Ok(())
}

/// Checks that the pod names no pods of other namespaces: an anti-affinity would keep these from its node or zone.
fn check_affinity(namespace: &str, spec: &PodSpec) -> Checked {
    let Some(affinity) = &spec.affinity else {
        return Ok(());
    };
    let near = affinity.pod_affinity.as_ref().map(|it| {
        (
            "podAffinity",
            &it.required_during_scheduling_ignored_during_execution,
            &it.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let far = affinity.pod_anti_affinity.as_ref().map(|it| {
        (
            "podAntiAffinity",
            &it.required_during_scheduling_ignored_during_execution,
            &it.preferred_during_scheduling_ignored_during_execution,
        )
    });
    for (name, required, preferred) in near.into_iter().chain(far) {
        let preferred = preferred.iter().flatten().map(|it| &it.pod_affinity_term);
        let mut terms = required.iter().flatten().chain(preferred);
        if terms.any(|term| is_of_other_namespaces(namespace, term)) {
            return Err(refusal(
                format!("spec.pod.affinity.{name}"),
                "selects pods of other namespaces".to_owned(),
                "remove namespaces and namespaceSelector",
            ));
        }
    }

    Ok(())
}

fn is_of_other_namespaces(namespace: &str, term: &PodAffinityTerm) -> bool {
    let mut names = term.namespaces.iter().flatten();
    term.namespace_selector.is_some() || names.any(|name| name != namespace)
}

/// Checks the kind of a volume. Those in the list of Kubernetes' `restricted`, and images, are permitted; others are storage
/// that the node connects to with its own address and rights.
fn check_volume(volume: &Volume) -> Checked {
    let field = || format!("spec.pod.volumes[{}]", shown(&volume.name));
    if !is_permitted(volume) {
        let remedy = "use a PersistentVolumeClaim, or emptyDir, configMap, secret, projected, downwardAPI, csi, ephemeral or \
                      image";
        let cause = "is of a kind that connects the node to storage, or unknown".to_owned();
        return Err(refusal(field(), cause, remedy));
    }
    let template = volume.ephemeral.as_ref();
    let template = template.and_then(|it| it.volume_claim_template.as_ref());
    let name = template.and_then(|it| it.spec.volume_name.as_deref());
    if name.is_some_and(|name| !name.is_empty()) {
        return Err(refusal(
            format!("{}.ephemeral.volumeClaimTemplate.spec.volumeName", field()),
            "names a PersistentVolume of the provider".to_owned(),
            "remove it",
        ));
    }

    Ok(())
}

/// Returns whether a volume is of a permitted kind.
fn is_permitted(volume: &Volume) -> bool {
    is_of_restricted(volume) || volume.image.is_some() && kinds(volume) == 1
}

/// Returns whether a volume is of a kind that Kubernetes' `restricted` permits. One of no kind is an emptyDir.
pub(super) fn is_of_restricted(volume: &Volume) -> bool {
    let permitted = [
        volume.config_map.is_some(),
        volume.csi.is_some(),
        volume.downward_api.is_some(),
        volume.empty_dir.is_some(),
        volume.ephemeral.is_some(),
        volume.persistent_volume_claim.is_some(),
        volume.projected.is_some(),
        volume.secret.is_some(),
    ];
    let kinds = kinds(volume);

    kinds == 0 || kinds == 1 && permitted.contains(&true)
}

/// Returns the number of kinds that a volume names.
fn kinds(volume: &Volume) -> usize {
    let value = serde_json::to_value(volume).unwrap_or_default();
    let fields = value.as_object().map_or(0, serde_json::Map::len);

    // One field is the name.
    fields.saturating_sub(1)
}

fn refusal(field: String, cause: String, remedy: &str) -> Refusal {
    let remedy = format!(
        "{remedy}, or the provider sets spec.podSecurity of the consumer's TenantPolicy to privileged"
    );
    Refusal::new(field, cause, remedy)
}
