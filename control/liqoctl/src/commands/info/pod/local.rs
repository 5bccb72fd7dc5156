//! The links in this cluster. PURE.

use super::facts::{Facts, Read, Unmapped, mapped};
use super::link::Link;
use crate::commands::info::node;
use crate::commands::offload::OFFLOADING;
use crate::pod_state;
use control_api::NamespaceOffloading;
use control_api::labels;
use control_api::offloading::namespace_map::MappingPhase;
use control_api::offloading::namespace_offloading::PodOffloadingStrategy as Strategy;
use control_api::offloading::virtual_node::{VirtualNodeCondition, VirtualNodeConditionStatus};
use kube::ResourceExt as _;

/// Returns the link of the pod itself.
pub(super) fn pod(facts: &Facts) -> Link {
    let title = format!("Pod {}/{}", facts.namespace(), facts.name());
    let status = facts.pod.status.clone().unwrap_or_default();
    let is_deleted = facts.pod.metadata.deletion_timestamp.is_some();

    Link::new("pod", title)
        .detail("phase", status.phase.unwrap_or_default())
        .detail("reason", status.reason.unwrap_or_default())
        .detail("message", status.message.unwrap_or_default())
        .detail("deletion", if is_deleted { "requested" } else { "" })
}

/// Returns the link to a virtual node.
pub(super) fn scheduling(facts: &Facts) -> Link {
    let link = Link::new("scheduling", "Scheduling");
    let Some(name) = facts.node_name() else {
        return link.broken(pending(facts));
    };
    let link = link.detail("node", name);
    let node = facts.node.found();
    let type_ = node.and_then(|it| it.labels().get(labels::NODE_TYPE));
    let is_virtual = type_.is_some_and(|it| it == labels::NODE_TYPE_VIRTUAL)
        || facts.virtual_node.found().is_some();
    match &facts.node {
        _ if is_virtual => link,
        Read::Failed(reason) => link.unknown(reason),
        Read::Absent => link.broken(format!(
            "Node {name} does not exist: Kubernetes deletes the pod, and its controller creates it again"
        )),
        Read::Found(_) => link.broken(format!(
            "the pod is not offloaded, {name} is a node of this cluster: {}",
            on_local_node(facts)
        )),
    }
}

/// Returns why a pod is bound to no node.
fn pending(facts: &Facts) -> String {
    let message = pod_state::unscheduled(&facts.pod);
    let start = match message {
        Some(message) => format!("the pod is not scheduled: {message}"),
        None => "the scheduler has not processed the pod yet".to_owned(),
    };
    match hindrance(facts) {
        Some(hindrance) => format!("{start} ({hindrance})"),
        None => start,
    }
}

/// Returns why a pod runs on a node of this cluster.
fn on_local_node(facts: &Facts) -> String {
    let namespace = facts.namespace();
    let strategy = facts.offloading.found().map(strategy);
    hindrance(facts).unwrap_or_else(|| match strategy {
        Some(Strategy::Remote) => format!(
            "it was created before namespace {namespace} was offloaded: delete it, so that its controller creates it again"
        ),
        Some(Strategy::LocalAndRemote | Strategy::Local) | None => format!(
            "podOffloadingStrategy LocalAndRemote of namespace {namespace} lets the scheduler choose: use the strategy Remote, or a node selector {}={}",
            labels::NODE_TYPE,
            labels::NODE_TYPE_VIRTUAL
        ),
    })
}

/// Returns why no pod of the namespace is scheduled on virtual nodes, or none if they can be.
fn hindrance(facts: &Facts) -> Option<String> {
    let namespace = facts.namespace();
    match &facts.offloading {
        Read::Absent => Some(format!(
            "namespace {namespace} is not offloaded: run `liqoctl offload namespace {namespace}`"
        )),
        Read::Failed(reason) => Some(reason.clone()),
        Read::Found(offloading) if strategy(offloading) == Strategy::Local => Some(format!(
            "podOffloadingStrategy of NamespaceOffloading {namespace}/{OFFLOADING} is Local: use Remote or LocalAndRemote"
        )),
        Read::Found(_) => None,
    }
}

fn strategy(offloading: &NamespaceOffloading) -> Strategy {
    offloading.spec.pod_offloading_strategy.unwrap_or_default()
}

/// Returns the link of the virtual node.
pub(super) fn virtual_node(facts: &Facts) -> Link {
    let name = facts.node_name().unwrap_or_default();
    let link = Link::new("virtualNode", format!("Virtual node {name}"))
        .detail("provider", facts.provider_id().unwrap_or_default());
    let virtual_node = match &facts.virtual_node {
        Read::Found(virtual_node) => virtual_node,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent => {
            return link.broken(format!(
                "VirtualNode {name} does not exist, which the Node is of: delete the Node, or peer again"
            ));
        }
    };
    let conditions = virtual_node.status.iter().flat_map(|it| &it.conditions);
    let mut changing = conditions.filter(|it| !is_running(it));
    if let Some(condition) = changing.next() {
        let message = condition.message.as_deref().unwrap_or_default();
        return link.broken(format!(
            "{:?} is in state {:?}{}",
            condition.type_,
            condition.status,
            suffix(message)
        ));
    }
    match &facts.node {
        Read::Found(node) => {
            let is_cordoned = node.spec.as_ref().and_then(|it| it.unschedulable) == Some(true);
            let link = link.detail("scheduling", if is_cordoned { "disabled" } else { "" });
            match node::problem(node) {
                Some(problem) => link.broken(problem),
                None => link.detail("Node", "ready"),
            }
        }
        Read::Absent => link.broken(format!("Node {name} does not exist")),
        Read::Failed(reason) => link.unknown(reason),
    }
}

fn is_running(condition: &VirtualNodeCondition) -> bool {
    match condition.status {
        VirtualNodeConditionStatus::None | VirtualNodeConditionStatus::Running => true,
        VirtualNodeConditionStatus::Creating
        | VirtualNodeConditionStatus::Draining
        | VirtualNodeConditionStatus::Deleting => false,
    }
}

/// Returns the link of the namespace: it is offloaded, and the provider has created its counterpart.
pub(super) fn namespace(facts: &Facts) -> Link {
    let namespace = facts.namespace();
    let mut link = Link::new("namespace", format!("Namespace {namespace}"));
    let offloading = match &facts.offloading {
        Read::Found(offloading) => offloading,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent => {
            return link.broken(format!(
                "namespace {namespace} is no longer offloaded: run `liqoctl offload namespace {namespace}`, or delete the pod"
            ));
        }
    };
    let status = offloading.status.as_ref();
    let phase = status.and_then(|it| it.offloading_phase.clone());
    link = link
        .detail("strategy", format!("{:?}", strategy(offloading)))
        .detail("phase", phase.unwrap_or_default());
    let map = match &facts.map {
        Read::Found(map) => map,
        Read::Failed(reason) => return link.unknown(reason),
        Read::Absent => {
            return link.broken(format!(
                "there is no NamespaceMap of the provider: {}",
                not_requested(facts)
            ));
        }
    };
    match mapped(map, namespace) {
        Ok(remote) => link.detail("remoteNamespace", remote),
        Err(unmapped) => link.broken(why_unmapped(facts, &unmapped)),
    }
}

fn why_unmapped(facts: &Facts, unmapped: &Unmapped) -> String {
    match unmapped {
        Unmapped::NotRequested => not_requested(facts),
        Unmapped::NoReply => {
            "the provider has not replied to the request for a remote namespace".to_owned()
        }
        Unmapped::Phase(Some(MappingPhase::CreationLoopBackOff)) => format!(
            "the provider cannot create the remote namespace{}; if a namespace of that name and another owner exists there, offload with another name",
            suffix(&condition(facts))
        ),
        Unmapped::Phase(Some(MappingPhase::Terminating)) => {
            "the provider deletes the remote namespace".to_owned()
        }
        Unmapped::Phase(Some(MappingPhase::Accepted) | None) => {
            "the provider has not created the remote namespace yet".to_owned()
        }
        Unmapped::OtherName {
            requested,
            reported,
        } => format!(
            "the provider reports the remote namespace {reported} instead of {requested}: no pod is created there"
        ),
    }
}

fn not_requested(facts: &Facts) -> String {
    format!(
        "namespace {} is not offloaded to this provider: spec.clusterSelector of its NamespaceOffloading must select the virtual node{}",
        facts.namespace(),
        suffix(&condition(facts))
    )
}

/// Returns reason and message of the NamespaceOffloading's condition `Ready` of the provider, if it is not met.
fn condition(facts: &Facts) -> String {
    let conditions = facts.offloading.found().and_then(|it| it.status.as_ref());
    let conditions = conditions.map(|it| &it.remote_namespaces_conditions);
    let of_provider = conditions
        .zip(facts.provider_id())
        .and_then(|(conditions, provider)| conditions.get(provider));
    let mut unmet = of_provider
        .into_iter()
        .flatten()
        .filter(|it| it.status != "True");
    unmet.next().map_or_else(String::new, |it| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        format!("{}{}", text(&it.reason), suffix(&text(&it.message)))
    })
}

/// Returns a text after a colon, or nothing.
fn suffix(text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!(": {text}"),
    }
}
