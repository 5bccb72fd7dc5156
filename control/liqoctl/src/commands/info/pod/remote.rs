//! The link to the remote pod, and the network between the clusters. PURE.

use super::events::{About, newest};
use super::facts::{Counterparts, Facts, Read};
use super::link::Link;
use crate::commands::info::foreign;
use crate::pod_state;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus};

/// Returns the link to the remote pod.
pub(super) fn pod(facts: &Facts) -> Link {
    let (Some(namespace), Some(counterparts)) = (facts.remote_namespace(), facts.counterparts())
    else {
        let link = Link::new("remotePod", "Remote pod");
        return match facts.remote_namespace() {
            Some(_) => link.unknown("it was not read"),
            None => link.not_reached(),
        };
    };
    let link = Link::new(
        "remotePod",
        format!("Remote pod {namespace}/{}", facts.name()),
    );
    let pod = match &counterparts.pod {
        Read::Found(pod) => pod,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent if facts.has_ended() => return link.detail("state", "deleted after its end"),
        Read::Absent if counterparts.shadow.found().is_none() => return link.not_reached(),
        Read::Absent => {
            return link.broken(
                "it does not exist: the provider's controller-manager has not created it; the provider finds the reason in its logs and in the ShadowPod's Events",
            );
        }
    };
    let status = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let is_deleted = pod.metadata.deletion_timestamp.is_some();
    let mut link = link
        .detail("phase", status.phase.as_deref().unwrap_or_default())
        .detail(
            "node",
            spec.and_then(|it| it.node_name.as_deref())
                .unwrap_or_default(),
        )
        .detail("addresses", addresses(&status).join(", "))
        .detail("deletion", if is_deleted { "requested" } else { "" });
    // The names in the pod of this cluster bound what the provider can add.
    let containers = facts.pod.spec.iter().flat_map(|it| &it.containers);
    let states: Vec<String> = containers.map(|it| container(it, &status)).collect();
    link = link.detail("containers", states.join("; "));

    link.broken_if(failure(pod, counterparts))
}

/// Returns why a remote pod does not serve, or none if it does or has succeeded.
fn failure(pod: &Pod, counterparts: &Counterparts) -> Option<String> {
    let status = pod.status.clone().unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_default();
    let event = || newest(counterparts.events.found()?, About::pod(pod), &[]);
    match status.phase.as_deref() {
        Some("Succeeded") => None,
        Some("Failed") => Some(format!(
            "it has failed: {} {}",
            text(status.reason),
            text(status.message)
        )),
        Some("Running") => pod_state::obstacle(pod).or_else(|| unready(&status)),
        _ => pod_state::obstacle(pod).or_else(event).or_else(|| {
            Some("it has not started yet: its containers are being created".to_owned())
        }),
    }
}

/// Returns why the condition `Ready` of a running pod is not met.
fn unready(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.find(|it| it.type_ == "Ready");
    match ready {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!(
            "it is not ready: {} {}",
            ready.reason.as_deref().unwrap_or_default(),
            ready.message.as_deref().unwrap_or_default()
        )),
        None => Some("it is not ready".to_owned()),
    }
}

fn container(container: &Container, status: &PodStatus) -> String {
    let mut statuses = status.container_statuses.iter().flatten();
    let of_container = statuses.find(|it| it.name == container.name);
    let Some(status) = of_container else {
        return format!("{} not created", container.name);
    };
    let restarts = match status.restart_count {
        0 => String::new(),
        count => format!(", {count} restarts"),
    };
    format!("{} {}{restarts}", container.name, state(status))
}

fn state(status: &ContainerStatus) -> String {
    let state = status.state.clone().unwrap_or_default();
    if let Some(ended) = state.terminated {
        let reason = ended.reason.unwrap_or_default();
        return format!("terminated ({reason}, exit code {})", ended.exit_code);
    }
    match (state.running, state.waiting.and_then(|it| it.reason)) {
        (Some(_), _) if status.ready => "running".to_owned(),
        (Some(_), _) => "running, not ready".to_owned(),
        (None, Some(reason)) => format!("waiting ({reason})"),
        (None, None) => "waiting".to_owned(),
    }
}

/// Returns the link of the network: the address of the pod in this cluster, and the tunnel.
pub(super) fn network(facts: &Facts) -> Link {
    let link = Link::new("network", "Network");
    let local = facts.pod.status.as_ref().map(addresses).unwrap_or_default();
    let pod = facts.counterparts().and_then(|it| it.pod.found());
    let remote = pod.and_then(|it| it.status.as_ref());
    let remote = remote.map(addresses).unwrap_or_default();
    let foreign = match &facts.foreign {
        Read::Found(foreign) => foreign,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent => return link.broken("there is no ForeignCluster of the provider"),
    };
    let module = foreign::module(foreign, "networking");
    let link = link
        .detail("tunnel", module.status)
        .detail("addressAtProvider", remote.join(", "))
        .detail("addressHere", local.join(", "));
    if !module.alerts.is_empty() {
        return link.broken(module.alerts.join("; "));
    }
    let is_connected = module.status == "Healthy";
    if is_connected && !remote.is_empty() && local.is_empty() && !facts.has_ended() {
        return link.broken(
            "the pod has no address in this cluster: that at the provider is in none of the provider's pod CIDRs (`liqoctl info peer`), or the virtual kubelet does not reflect addresses (--disable-ip-reflection)",
        );
    }
    link
}

fn addresses(status: &PodStatus) -> Vec<String> {
    let several = status.pod_ips.iter().flatten().map(|it| it.ip.clone());
    let several: Vec<String> = several.collect();
    match several.is_empty() {
        true => status.pod_ip.iter().cloned().collect(),
        false => several,
    }
}
