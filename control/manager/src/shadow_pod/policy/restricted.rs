//! Kubernetes' Pod Security Standard `restricted`, of version 1.34, as far as it exceeds `baseline`.

use super::container::{Container, containers};
use super::isolation::is_of_restricted;
use super::{Checked, Refusal, violation};
use crate::shadow_pod::text::shown;
use k8s_openapi::api::core::v1::{PodSecurityContext, PodSpec};

/// Checks a pod.
pub(super) fn check(spec: &PodSpec) -> Checked {
    let mut volumes = spec.volumes.iter().flatten();
    if let Some(volume) = volumes.find(|volume| !is_of_restricted(volume)) {
        let field = format!("spec.pod.volumes[{}]", shown(&volume.name));
        return refuse(field, "is of another kind than the permitted ones");
    }
    let context = spec.security_context.clone().unwrap_or_default();
    let user = context.run_as_user;
    if user == Some(0) {
        return refuse("spec.pod.securityContext.runAsUser", "is 0");
    }
    // Windows has neither Linux' privileges nor seccomp.
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    containers(spec).try_for_each(|container| {
        check_user(&container, &context)?;
        match is_windows {
            true => Ok(()),
            false => check_privileges(&container, &context),
        }
    })
}

fn check_user(container: &Container<'_>, pod: &PodSecurityContext) -> Checked {
    let path = format!("{}.securityContext", container.path);
    let own = container.security;
    let non_root = own
        .and_then(|it| it.run_as_non_root)
        .or(pod.run_as_non_root);
    if non_root != Some(true) {
        return refuse(format!("{path}.runAsNonRoot"), "is not true");
    }
    if own.and_then(|it| it.run_as_user) == Some(0) {
        return refuse(format!("{path}.runAsUser"), "is 0");
    }

    Ok(())
}

fn check_privileges(container: &Container<'_>, pod: &PodSecurityContext) -> Checked {
    let path = format!("{}.securityContext", container.path);
    let own = container.security;
    if own.and_then(|it| it.allow_privilege_escalation) != Some(false) {
        return refuse(format!("{path}.allowPrivilegeEscalation"), "is not false");
    }
    let seccomp = own.and_then(|it| it.seccomp_profile.as_ref());
    if seccomp.or(pod.seccomp_profile.as_ref()).is_none() {
        return refuse(format!("{path}.seccompProfile"), "is missing");
    }
    let capabilities = own
        .and_then(|it| it.capabilities.clone())
        .unwrap_or_default();
    if !capabilities.drop.iter().flatten().any(|it| it == "ALL") {
        return refuse(
            format!("{path}.capabilities.drop"),
            "does not contain `ALL`",
        );
    }
    let mut added = capabilities.add.iter().flatten();
    match added.find(|it| *it != "NET_BIND_SERVICE") {
        Some(capability) => refuse(
            format!("{path}.capabilities.add"),
            format!("contains `{}`", shown(capability)),
        ),
        None => Ok(()),
    }
}

fn refuse(field: impl Into<String>, cause: impl Into<String>) -> Checked {
    Err::<(), Refusal>(violation("restricted", field, cause))
}
