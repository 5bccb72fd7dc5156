//! Which pods a consumer may have (PURE): Kubernetes' Pod Security Standards, and what only the TenantPolicy permits.
//!
//! A [`Profile`] is computed once for each ShadowPod, so that the cache need not keep whole pods: the violations do not depend
//! on the policy, which only chooses those that count.
//!
//! | module | violations | permitted by |
//! |---|---|---|
//! | `fixed` | nodeName, schedulerName, priority, devices, mirror pods | nothing |
//! | `isolation` | tolerations of the control plane, affinity to pods of other namespaces, kinds of volumes | `privileged` |
//! | `baseline` | those of Kubernetes' `baseline` | `privileged` |
//! | `restricted` | those of Kubernetes' `restricted` | `privileged`, `baseline` |
//! | this one | names of ServiceAccounts, PriorityClasses and RuntimeClasses | the lists of the policy |
//!
//! Source: Kubernetes documentation, Pod Security Standards.

use super::text::shown;
use control_api::TenantPolicySpec;
use control_api::authentication::tenant_policy::PodSecurity;
use k8s_openapi::api::core::v1::PodSpec;
use std::collections::BTreeMap;

mod baseline;
mod container;
mod fixed;
mod isolation;
mod restricted;

/// The name of the ServiceAccount that each namespace has.
const DEFAULT_ACCOUNT: &str = "default";

/// Longest name of an object.
const NAME_LEN_MAX: usize = 253;

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {cause}: {remedy}")]
pub(crate) struct Refusal {
    /// Path of the field.
    pub(crate) field: String,
    /// The violation.
    pub(crate) cause: String,
    /// A change by the consumer or the provider.
    pub(crate) remedy: String,
}

impl Refusal {
    fn new(field: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            cause: cause.into(),
            remedy: remedy.into(),
        }
    }
}

/// Result of a check.
type Checked = Result<(), Refusal>;

/// Annotations of a pod.
type Annotations = BTreeMap<String, String>;

/// The properties of a pod that a TenantPolicy decides about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Violation that no policy permits.
    fixed: Option<Refusal>,
    /// Violation that `privileged` permits.
    baseline: Option<Refusal>,
    /// Violation that `baseline` permits.
    restricted: Option<Refusal>,
    /// Name of the ServiceAccount, and the field that names it.
    account: Option<(&'static str, String)>,
    /// Field by which the pod gets a token of its ServiceAccount.
    token: Option<String>,
    priority_class: Option<String>,
    runtime_class: Option<String>,
}

impl Profile {
    /// Returns the profile of a pod in a namespace.
    pub(crate) fn of(namespace: &str, annotations: &Annotations, spec: &PodSpec) -> Self {
        let isolation = || isolation::check(namespace, spec);
        let baseline = baseline::check(annotations, spec).and_then(|()| isolation());
        let names = [
            ("spec.pod.serviceAccountName", &spec.service_account_name),
            ("spec.pod.serviceAccount", &spec.service_account),
        ];
        let named = |name: &Option<String>| {
            let name = name.as_deref().filter(|name| !name.is_empty())?;
            // A longer one is in no list.
            Some(name.chars().take(NAME_LEN_MAX + 1).collect::<String>())
        };
        let accounts = names.map(|(field, name)| named(name).map(|name| (field, name)));

        Self {
            fixed: fixed::check(annotations, spec).err(),
            baseline: baseline.err(),
            restricted: restricted::check(spec).err(),
            account: accounts.into_iter().flatten().next(),
            token: fixed::token(spec),
            priority_class: named(&spec.priority_class_name),
            runtime_class: named(&spec.runtime_class_name),
        }
    }

    /// Returns the RuntimeClass that the pod names.
    pub(super) fn runtime_class(&self) -> Option<&str> {
        self.runtime_class.as_deref()
    }

    /// Checks the pod against the policy of its consumer; the defaults without one.
    ///
    /// # Errors
    ///
    /// Returns the first violation that the policy does not permit.
    pub(crate) fn check(&self, policy: Option<&TenantPolicySpec>) -> Checked {
        let level = policy.and_then(|it| it.pod_security).unwrap_or_default();
        let (has_baseline, has_restricted) = match level {
            PodSecurity::Privileged => (false, false),
            PodSecurity::Baseline => (true, false),
            PodSecurity::Restricted => (true, true),
        };
        let baseline = self.baseline.as_ref().filter(|_| has_baseline);
        let restricted = self.restricted.as_ref().filter(|_| has_restricted);
        if let Some(refusal) = self.fixed.as_ref().or(baseline).or(restricted) {
            return Err(refusal.clone());
        }
        let list = |names: Option<&Vec<String>>| names.cloned().unwrap_or_default();
        self.check_account(&list(policy.and_then(|it| it.service_accounts.as_ref())))?;
        let classes = list(policy.and_then(|it| it.priority_classes.as_ref()));
        listed(
            ("spec.pod.priorityClassName", "priorityClasses"),
            self.priority_class.as_deref(),
            &classes,
        )?;
        match policy.and_then(|it| it.runtime_classes.as_ref()) {
            // All are permitted.
            None => Ok(()),
            Some(classes) => listed(
                ("spec.pod.runtimeClassName", "runtimeClasses"),
                self.runtime_class.as_deref(),
                classes,
            ),
        }
    }

    /// Checks the ServiceAccount. Without a token, that of the namespace gives no right.
    fn check_account(&self, accounts: &[String]) -> Checked {
        let (field, name) = self
            .account
            .as_ref()
            .map_or(("spec.pod.serviceAccountName", DEFAULT_ACCOUNT), |it| {
                (it.0, it.1.as_str())
            });
        if accounts.iter().any(|account| account == name) {
            return Ok(());
        }
        if name != DEFAULT_ACCOUNT {
            return listed((field, "serviceAccounts"), Some(name), accounts);
        }
        let Some(token) = &self.token else {
            return Ok(());
        };
        Err(Refusal::new(
            token.as_str(),
            "gives the pod a token of the ServiceAccount `default`",
            "set automountServiceAccountToken to false and remove the token, or the provider lists `default` in \
             spec.serviceAccounts of the consumer's TenantPolicy",
        ))
    }
}

/// Checks that a name is in a list of the policy.
fn listed(
    (field, list): (&'static str, &'static str),
    name: Option<&str>,
    names: &[String],
) -> Checked {
    let Some(name) = name.filter(|name| !names.iter().any(|it| it == name)) else {
        return Ok(());
    };
    Err(Refusal::new(
        field,
        format!("is `{}`, which the provider does not permit", shown(name)),
        format!(
            "remove it, or the provider lists it in spec.{list} of the consumer's TenantPolicy"
        ),
    ))
}

/// Returns the refusal of a field by a Pod Security Standard.
fn violation(standard: &str, field: impl Into<String>, cause: impl Into<String>) -> Refusal {
    let (cause, standard) = (cause.into(), standard.to_owned());
    Refusal::new(
        field,
        format!("{cause}, which violates Pod Security `{standard}`"),
        "remove it, or the provider sets spec.podSecurity of the consumer's TenantPolicy",
    )
}
