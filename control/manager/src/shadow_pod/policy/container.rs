//! The containers of a pod, of all three lists.

use crate::shadow_pod::text::shown;
use k8s_openapi::api::core::v1::{
    ContainerPort, Lifecycle, LifecycleHandler, PodSpec, Probe, SecurityContext,
};

/// The fields of a container that the checks read.
pub(super) struct Container<'a> {
    /// Path of the field.
    pub(super) path: String,
    pub(super) security: Option<&'a SecurityContext>,
    pub(super) ports: &'a [ContainerPort],
    lifecycle: Option<&'a Lifecycle>,
    probes: [(&'static str, Option<&'a Probe>); 3],
}

/// Returns the containers of a pod.
pub(super) fn containers(spec: &PodSpec) -> impl Iterator<Item = Container<'_>> {
    macro_rules! container {
        ($list:literal, $it:expr) => {
            Container {
                path: format!("spec.pod.{}[{}]", $list, shown(&$it.name)),
                security: $it.security_context.as_ref(),
                ports: $it.ports.as_deref().unwrap_or_default(),
                lifecycle: $it.lifecycle.as_ref(),
                probes: [
                    ("livenessProbe", $it.liveness_probe.as_ref()),
                    ("readinessProbe", $it.readiness_probe.as_ref()),
                    ("startupProbe", $it.startup_probe.as_ref()),
                ],
            }
        };
    }
    let containers = spec
        .containers
        .iter()
        .map(|it| container!("containers", it));
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|it| container!("initContainers", it));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|it| container!("ephemeralContainers", it));

    containers.chain(init).chain(ephemeral)
}

impl Container<'_> {
    /// Returns the field of the first probe or hook that names a host, to which the node would connect.
    pub(super) fn host_of_probe(&self) -> Option<String> {
        let probes = self.probes.iter().find_map(|(name, probe)| {
            let probe = (*probe)?;
            let http = probe.http_get.as_ref().and_then(|it| it.host.as_deref());
            let tcp = probe.tcp_socket.as_ref().and_then(|it| it.host.as_deref());
            host(&format!("{}.{name}", self.path), http, tcp)
        });
        let hooks = || {
            let lifecycle = self.lifecycle?;
            let hook = |name: &str, handler: Option<&LifecycleHandler>| {
                let handler = handler?;
                let http = handler.http_get.as_ref().and_then(|it| it.host.as_deref());
                let tcp = handler
                    .tcp_socket
                    .as_ref()
                    .and_then(|it| it.host.as_deref());
                host(&format!("{}.lifecycle.{name}", self.path), http, tcp)
            };
            hook("postStart", lifecycle.post_start.as_ref())
                .or_else(|| hook("preStop", lifecycle.pre_stop.as_ref()))
        };

        probes.or_else(hooks)
    }
}

fn host(path: &str, http: Option<&str>, tcp: Option<&str>) -> Option<String> {
    let named = |host: Option<&str>| host.is_some_and(|host| !host.is_empty());
    if named(http) {
        return Some(format!("{path}.httpGet.host"));
    }

    named(tcp).then(|| format!("{path}.tcpSocket.host"))
}
