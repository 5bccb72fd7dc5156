//! The spec of the remote pod.

use super::affinity;
use super::api_server::{self, ApiServerSupport};
use super::context::Context;
use super::volumes;
use control_api::annotations;
use k8s_openapi::api::core::v1::{
    Container, EphemeralContainer, HostAlias, Pod, PodSpec, Toleration,
};

/// RuntimeClass with which a pod requests a virtual node. Providers need not have it.
const RUNTIME_CLASS_LIQO: &str = "liqo";

/// Taint of virtual nodes.
const TAINT_VIRTUAL_NODE: &str = "virtual-node.liqo.io/not-allowed";

/// Taints of a node that has failed.
const NODE_FAILURE_TAINTS: [&str; 2] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
];

/// Returns the spec of the remote pod.
///
/// Every field is named here, so that a field of a later Kubernetes is left out.
pub(super) fn spec(pod: &Pod, context: &Context<'_>) -> PodSpec {
    let Some(local) = &pod.spec else {
        return PodSpec::default();
    };
    let support = ApiServerSupport::of(pod, context.api_server_support);
    let is_remote = support == ApiServerSupport::Remote;

    PodSpec {
        active_deadline_seconds: local.active_deadline_seconds,
        affinity: affinity::affinity(pod, context.patch),
        automount_service_account_token: Some(is_remote),
        containers: containers(&local.containers, pod, context),
        dns_config: local.dns_config.clone(),
        dns_policy: local.dns_policy.clone(),
        enable_service_links: local.enable_service_links,
        ephemeral_containers: non_empty(ephemeral_containers(pod, context), Vec::is_empty)
            .filter(|_| context.applies_changes),
        host_aliases: host_aliases(local, support, context),
        hostname: local.hostname.clone(),
        image_pull_secrets: local.image_pull_secrets.clone(),
        init_containers: local
            .init_containers
            .as_ref()
            .map(|it| containers(it, pod, context)),
        node_selector: non_empty(context.patch.node_selector.clone(), |it| it.is_empty()),
        readiness_gates: local.readiness_gates.clone(),
        restart_policy: local.restart_policy.clone(),
        runtime_class_name: runtime_class(pod, context),
        security_context: local.security_context.clone(),
        service_account_name: is_remote.then(|| remote_service_account(pod)).flatten(),
        set_hostname_as_fqdn: local.set_hostname_as_fqdn,
        share_process_namespace: local.share_process_namespace,
        subdomain: local.subdomain.clone(),
        termination_grace_period_seconds: local.termination_grace_period_seconds,
        tolerations: non_empty(tolerations(local, context), Vec::is_empty),
        topology_spread_constraints: local.topology_spread_constraints.clone(),
        volumes: volumes::volumes(pod, support, context),
        ..PodSpec::default()
    }
}

/// Returns the ephemeral containers of the remote pod.
pub(super) fn ephemeral_containers(pod: &Pod, context: &Context<'_>) -> Vec<EphemeralContainer> {
    let spec = pod.spec.iter();
    let local = spec.flat_map(|it| it.ephemeral_containers.iter().flatten());
    let mut containers: Vec<_> = local.cloned().collect();
    if ApiServerSupport::of(pod, context.api_server_support).reaches_home() {
        for container in &mut containers {
            api_server::extend_environment(&mut container.env, pod, context.api_server);
        }
    }
    containers
}

fn containers(local: &[Container], pod: &Pod, context: &Context<'_>) -> Vec<Container> {
    let mut containers = local.to_vec();
    if ApiServerSupport::of(pod, context.api_server_support).reaches_home() {
        for container in &mut containers {
            api_server::extend_environment(&mut container.env, pod, context.api_server);
        }
    }
    containers
}

fn host_aliases(
    local: &PodSpec,
    support: ApiServerSupport,
    context: &Context<'_>,
) -> Option<Vec<HostAlias>> {
    let mut aliases = local.host_aliases.clone().unwrap_or_default();
    if support.reaches_home() {
        aliases.extend(context.api_server.host_aliases());
    }
    non_empty(aliases, Vec::is_empty)
}

fn tolerations(local: &PodSpec, context: &Context<'_>) -> Vec<Toleration> {
    let is_local = |it: &Toleration| {
        it.key.as_deref() == Some(TAINT_VIRTUAL_NODE) || is_of_repatriation(it, context)
    };
    let local = local.tolerations.iter().flatten();
    let kept = local.filter(|it| !is_local(it));
    kept.chain(&context.patch.tolerations).cloned().collect()
}

/// Returns whether a toleration says how long the pod waits for its virtual node, which must not apply to the
/// provider's node.
fn is_of_repatriation(toleration: &Toleration, context: &Context<'_>) -> bool {
    let key = toleration.key.as_deref();
    context.repatriation.is_some_and(|repatriation| {
        key.is_some_and(|key| NODE_FAILURE_TAINTS.contains(&key))
            && toleration.operator.as_deref() == Some("Exists")
            && toleration.effect.as_deref() == Some("NoExecute")
            && toleration.toleration_seconds == repatriation.toleration_seconds()
    })
}

fn runtime_class(pod: &Pod, context: &Context<'_>) -> Option<String> {
    let is_of_provider = |name: &&str| !name.is_empty() && *name != RUNTIME_CLASS_LIQO;
    let local = pod
        .spec
        .as_ref()
        .and_then(|it| it.runtime_class_name.as_deref());
    let patch = context.patch.runtime_class_name.as_deref();

    annotation(pod, annotations::REMOTE_RUNTIME_CLASS)
        .or_else(|| local.filter(is_of_provider))
        .or_else(|| patch.filter(is_of_provider))
        .map(str::to_owned)
}

fn remote_service_account(pod: &Pod) -> Option<String> {
    let local = pod
        .spec
        .as_ref()
        .and_then(|it| it.service_account_name.as_deref());
    annotation(pod, annotations::REMOTE_SERVICE_ACCOUNT)
        .or(local)
        .map(str::to_owned)
}

/// Returns an annotation of a pod that is not empty.
fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    let value = pod.metadata.annotations.as_ref()?.get(key)?;
    Some(value.as_str()).filter(|it| !it.is_empty())
}

fn non_empty<T>(value: T, is_empty: impl FnOnce(&T) -> bool) -> Option<T> {
    (!is_empty(&value)).then_some(value)
}
