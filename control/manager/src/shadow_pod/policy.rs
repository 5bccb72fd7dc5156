//! Which pods a consumer may have, by its TenantPolicy.
//!
//! The namespace's Pod Security Standard, which the API server enforces, covers host namespaces, volumes and privileges. Here
//! is what it does not cover: fields by which a pod gets rights, precedence or a node of its own choice.

use control_api::TenantPolicySpec;
use k8s_openapi::api::core::v1::{PodSpec, Toleration};

/// Longest spec of a pod, as JSON in bytes. The API server limits an object to 1.5 MiB, and the Pod has further fields.
pub(super) const SPEC_LEN_MAX: usize = 1 << 20;

/// ServiceAccount of pods that name none.
const DEFAULT_SERVICE_ACCOUNT: &str = "default";

/// Taints by which an administrator reserves nodes for the cluster itself.
const RESERVED_TAINTS: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// Why a pod is refused, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PolicyError {
    #[error("spec.pod is missing: the consumer needs a virtual kubelet of Liqo")]
    Missing,
    #[error("spec.pod.{0} is not allowed in pods of consumers: remove it")]
    Field(&'static str),
    #[error(
        "spec.pod.{field} `{value}` is not allowed: remove it, or list it in spec.{list} of the consumer's TenantPolicy"
    )]
    NotListed {
        field: &'static str,
        value: String,
        list: &'static str,
    },
    #[error(
        "spec.pod.tolerations: tolerating `{0}` is not allowed in pods of consumers: remove it"
    )]
    Toleration(String),
    #[error("spec.pod has {0} bytes, and {SPEC_LEN_MAX} are allowed: make the pod smaller")]
    TooLong(usize),
}

/// Checks the spec of a pod.
///
/// # Errors
///
/// Returns [`PolicyError`] for the first field that is refused.
pub(super) fn check(spec: &PodSpec, policy: Option<&TenantPolicySpec>) -> Result<(), PolicyError> {
    let is_set = |text: &Option<String>| text.as_ref().is_some_and(|it| !it.is_empty());
    let is_on = |flag: Option<bool>| flag == Some(true);
    let fields = [
        ("nodeName", is_set(&spec.node_name)),
        ("hostNetwork", is_on(spec.host_network)),
        ("hostPID", is_on(spec.host_pid)),
        ("hostIPC", is_on(spec.host_ipc)),
        ("priority", spec.priority.is_some_and(|it| it != 0)),
        (
            "schedulerName",
            spec.scheduler_name
                .as_deref()
                .is_some_and(|it| !["", "default-scheduler"].contains(&it)),
        ),
        (
            "resourceClaims",
            spec.resource_claims
                .as_ref()
                .is_some_and(|it| !it.is_empty()),
        ),
    ];
    if let Some((field, _)) = fields.into_iter().find(|(_, is_used)| *is_used) {
        return Err(PolicyError::Field(field));
    }
    let account = spec.service_account_name.as_deref().unwrap_or_default();
    let is_default = ["", DEFAULT_SERVICE_ACCOUNT].contains(&account)
        && spec.automount_service_account_token == Some(false);
    let named = if is_default {
        None
    } else {
        Some(account)
            .filter(|it| !it.is_empty())
            .or(Some(DEFAULT_SERVICE_ACCOUNT))
    };
    let accounts = policy
        .and_then(|it| it.service_accounts.as_deref())
        .unwrap_or_default();
    listed("serviceAccountName", named, accounts, "serviceAccounts")?;
    let priorities = policy
        .and_then(|it| it.priority_classes.as_deref())
        .unwrap_or_default();
    let priority = spec
        .priority_class_name
        .as_deref()
        .filter(|it| !it.is_empty());
    listed("priorityClassName", priority, priorities, "priorityClasses")?;
    if let Some(classes) = policy.and_then(|it| it.runtime_classes.as_deref()) {
        let class = spec
            .runtime_class_name
            .as_deref()
            .filter(|it| !it.is_empty());
        listed("runtimeClassName", class, classes, "runtimeClasses")?;
    }

    spec.tolerations.iter().flatten().try_for_each(tolerated)
}

fn listed(
    field: &'static str,
    value: Option<&str>,
    allowed: &[String],
    list: &'static str,
) -> Result<(), PolicyError> {
    match value {
        Some(value) if !allowed.iter().any(|it| it == value) => Err(PolicyError::NotListed {
            field,
            value: value.to_owned(),
            list,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Checks a toleration: pods of consumers run on no control plane node.
fn tolerated(toleration: &Toleration) -> Result<(), PolicyError> {
    let key = toleration.key.as_deref().unwrap_or_default();
    if RESERVED_TAINTS.contains(&key) {
        return Err(PolicyError::Toleration(key.to_owned()));
    }
    // Without a key, all taints are tolerated.
    if key.is_empty() {
        return Err(PolicyError::Toleration("all taints".to_owned()));
    }

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn check(change: Value, policy: Value) -> Result<(), String> {
        let mut spec = json!({"containers": [], "automountServiceAccountToken": false});
        spec.as_object_mut()
            .unwrap()
            .extend(change.as_object().cloned().unwrap());
        let spec: PodSpec = from_value(spec).unwrap();
        let policy: TenantPolicySpec = from_value(policy).unwrap();
        super::check(&spec, Some(&policy)).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_that_choose_a_node_or_leave_the_pod_are_refused() {
        for (field, value) in [
            ("nodeName", json!("milan-1")),
            ("hostNetwork", json!(true)),
            ("hostPID", json!(true)),
            ("hostIPC", json!(true)),
            ("priority", json!(2_000_000_000)),
            ("schedulerName", json!("other")),
            ("resourceClaims", json!([{"name": "gpu"}])),
        ] {
            let error = check(json!({field: value}), json!({})).unwrap_err();
            assert!(error.contains(&format!("spec.pod.{field}")), "{error}");
        }
        let harmless =
            json!({"hostNetwork": false, "priority": 0, "schedulerName": "default-scheduler"});
        assert_eq!(check(harmless, json!({})), Ok(()));
    }

    #[test]
    fn service_accounts_must_be_listed_if_they_give_a_token() {
        assert_eq!(
            check(json!({"serviceAccountName": "default"}), json!({})),
            Ok(())
        );
        for change in [
            json!({"serviceAccountName": "builder"}),
            json!({"automountServiceAccountToken": true}),
            json!({"automountServiceAccountToken": null}),
        ] {
            let error = check(change, json!({})).unwrap_err();
            assert!(error.contains("spec.serviceAccounts"), "{error}");
        }
        let policy = json!({"serviceAccounts": ["builder"]});
        assert_eq!(
            check(json!({"serviceAccountName": "builder"}), policy),
            Ok(())
        );
    }

    #[test]
    fn classes_are_limited_by_the_policy() {
        let error = check(json!({"priorityClassName": "batch"}), json!({})).unwrap_err();
        assert!(error.contains("spec.priorityClasses"), "{error}");
        let policy = json!({"priorityClasses": ["batch"], "runtimeClasses": ["gvisor"]});
        assert_eq!(
            check(json!({"priorityClassName": "batch"}), policy.clone()),
            Ok(())
        );
        assert_eq!(
            check(json!({"runtimeClassName": "kata"}), json!({})),
            Ok(()),
            "all by default"
        );
        assert!(check(json!({"runtimeClassName": "kata"}), policy).is_err());
    }

    #[test]
    fn pods_of_consumers_tolerate_no_taints_of_the_control_plane() {
        for toleration in [
            json!({"operator": "Exists"}),
            json!({"key": "", "operator": "Exists", "effect": "NoExecute"}),
            json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}),
        ] {
            assert!(check(json!({"tolerations": [toleration]}), json!({})).is_err());
        }
        let usual = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"});
        assert_eq!(check(json!({"tolerations": [usual]}), json!({})), Ok(()));
    }
}
