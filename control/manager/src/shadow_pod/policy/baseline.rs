//! Kubernetes' Pod Security Standard `baseline`, of version 1.34.

use super::container::{Container, containers};
use super::{Annotations, Checked, Refusal, violation};
use crate::shadow_pod::text::shown;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSpec, SELinuxOptions, SeccompProfile, WindowsSecurityContextOptions,
};

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

/// Prefix of the annotations with the AppArmor profile of a container.
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks a pod.
pub(super) fn check(annotations: &Annotations, spec: &PodSpec) -> Checked {
    check_host_namespaces(spec)?;
    let mut volumes = spec.volumes.iter().flatten();
    if let Some(volume) = volumes.find(|volume| volume.host_path.is_some()) {
        let field = format!("spec.pod.volumes[{}].hostPath", shown(&volume.name));
        return refuse(field, "is a directory of the node");
    }
    let apparmor = annotations
        .iter()
        .filter(|(key, _)| key.starts_with(APPARMOR));
    for (_, profile) in apparmor {
        if !["", "runtime/default"].contains(&profile.as_str())
            && !profile.starts_with("localhost/")
        {
            return refuse(
                format!("metadata.annotations[{APPARMOR}*]"),
                "is no profile of AppArmor",
            );
        }
    }
    check_pod_context(spec)?;
    containers(spec).try_for_each(|container| check_container(&container))
}

fn check_host_namespaces(spec: &PodSpec) -> Checked {
    let namespaces = [
        ("spec.pod.hostNetwork", spec.host_network),
        ("spec.pod.hostPID", spec.host_pid),
        ("spec.pod.hostIPC", spec.host_ipc),
    ];
    match namespaces.iter().find(|(_, value)| *value == Some(true)) {
        Some((field, _)) => refuse(*field, "shares a namespace of the node"),
        None => Ok(()),
    }
}

fn check_pod_context(spec: &PodSpec) -> Checked {
    let Some(context) = &spec.security_context else {
        return Ok(());
    };
    let path = "spec.pod.securityContext";
    check_profiles(
        path,
        (
            context.app_armor_profile.as_ref(),
            context.se_linux_options.as_ref(),
            context.seccomp_profile.as_ref(),
            context.windows_options.as_ref(),
        ),
    )?;
    let mut sysctls = context.sysctls.iter().flatten();
    match sysctls.find(|it| !SYSCTLS.contains(&it.name.as_str())) {
        Some(sysctl) => refuse(
            format!("{path}.sysctls[{}]", shown(&sysctl.name)),
            "changes a parameter of the node's kernel",
        ),
        None => Ok(()),
    }
}

fn check_container(container: &Container<'_>) -> Checked {
    let path = &container.path;
    let host_port = |port: &i32| *port != 0;
    if container
        .ports
        .iter()
        .filter_map(|it| it.host_port)
        .any(|it| host_port(&it))
    {
        return refuse(format!("{path}.ports.hostPort"), "is a port of the node");
    }
    if let Some(field) = container.host_of_probe() {
        return refuse(field, "has the node connect to another host");
    }
    let Some(context) = container.security else {
        return Ok(());
    };
    let path = format!("{path}.securityContext");
    if context.privileged == Some(true) {
        return refuse(format!("{path}.privileged"), "is true");
    }
    let added = context.capabilities.iter().flat_map(|it| &it.add).flatten();
    if let Some(capability) = added
        .into_iter()
        .find(|it| !CAPABILITIES.contains(&it.as_str()))
    {
        return refuse(
            format!("{path}.capabilities.add"),
            format!("contains `{}`", shown(capability)),
        );
    }
    let proc_mount = context.proc_mount.as_deref().unwrap_or_default();
    if !["", "Default"].contains(&proc_mount) {
        return refuse(
            format!("{path}.procMount"),
            format!("is `{}`", shown(proc_mount)),
        );
    }

    check_profiles(
        &path,
        (
            context.app_armor_profile.as_ref(),
            context.se_linux_options.as_ref(),
            context.seccomp_profile.as_ref(),
            context.windows_options.as_ref(),
        ),
    )
}

/// Profiles of the kernel's security modules.
type Profiles<'a> = (
    Option<&'a AppArmorProfile>,
    Option<&'a SELinuxOptions>,
    Option<&'a SeccompProfile>,
    Option<&'a WindowsSecurityContextOptions>,
);

fn check_profiles(path: &str, (apparmor, selinux, seccomp, windows): Profiles<'_>) -> Checked {
    let permitted = ["RuntimeDefault", "Localhost"];
    if let Some(profile) = apparmor.filter(|it| !permitted.contains(&it.type_.as_str())) {
        return refuse(
            format!("{path}.appArmorProfile.type"),
            format!("is `{}`", shown(&profile.type_)),
        );
    }
    if let Some(profile) = seccomp.filter(|it| !permitted.contains(&it.type_.as_str())) {
        return refuse(
            format!("{path}.seccompProfile.type"),
            format!("is `{}`", shown(&profile.type_)),
        );
    }
    if windows.is_some_and(|it| it.host_process == Some(true)) {
        return refuse(format!("{path}.windowsOptions.hostProcess"), "is true");
    }
    let Some(options) = selinux else {
        return Ok(());
    };
    let type_ = options.type_.as_deref().unwrap_or_default();
    if !SELINUX_TYPES.contains(&type_) {
        let cause = format!("is `{}`", shown(type_));
        return refuse(format!("{path}.seLinuxOptions.type"), cause);
    }
    for (name, value) in [("user", &options.user), ("role", &options.role)] {
        if value.as_deref().is_some_and(|it| !it.is_empty()) {
            return refuse(format!("{path}.seLinuxOptions.{name}"), "is set");
        }
    }

    Ok(())
}

fn refuse(field: impl Into<String>, cause: impl Into<String>) -> Checked {
    Err::<(), Refusal>(violation("baseline", field, cause))
}
