//! The result of the controllers in a NamespaceOffloading.

use super::desired::Desired;
use super::{OFFLOADING, desired::MappingStrategy};
use crate::cluster::Cluster;
use crate::label_selector::LabelSelector;
use crate::steps::Progress;
use control_api::labels;
use control_api::offloading::namespace_offloading::{
    NamespaceOffloading, RemoteNamespaceCondition,
};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt as _};

/// Number of virtual nodes that a message lists.
const SHOWN_MAX: usize = 10;

/// State in which the command ends with success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All selected clusters have the namespace.
    Ready,
    /// No cluster is selected.
    NoClusterSelected,
}

/// Returns the result of at least this generation of the object.
pub(super) fn of(object: &NamespaceOffloading, generation: i64) -> Progress<Outcome> {
    let namespace = object.namespace().unwrap_or_default();
    let status = object.status.clone().unwrap_or_default();
    let current = object.metadata.generation.unwrap_or_default();
    if current < generation || status.observed_generation != Some(current) {
        return Progress::Missing(format!(
            "the controller-manager has not processed NamespaceOffloading {namespace}/{OFFLOADING}: check its pods and their logs in Liqo's namespace"
        ));
    }
    let unready = unready(&status.remote_namespaces_conditions);
    match status.offloading_phase.as_deref() {
        Some("Ready") => Progress::Done(Outcome::Ready),
        Some("NoClusterSelected") => Progress::Done(Outcome::NoClusterSelected),
        Some(phase @ ("AllFailed" | "SomeFailed")) => Progress::Refused(failed(
            &namespace,
            phase,
            status.remote_namespace_name.as_deref(),
            &unready,
        )),
        phase => Progress::Missing(format!(
            "namespace {namespace} is in phase {}{}",
            phase.unwrap_or("unknown"),
            listed(": ", &unready)
        )),
    }
}

/// Returns "CLUSTER: REASON (MESSAGE)" of each selected cluster without the namespace.
fn unready<'a>(
    clusters: impl IntoIterator<Item = (&'a String, &'a Vec<RemoteNamespaceCondition>)>,
) -> Vec<String> {
    let of = |conditions: &'a [RemoteNamespaceCondition], type_: &str| {
        conditions.iter().find(|it| it.type_ == type_)
    };
    let unready = clusters.into_iter().filter_map(|(cluster, conditions)| {
        let is_required =
            of(conditions, "OffloadingRequired").is_some_and(|it| it.status == "True");
        let ready = of(conditions, "Ready");
        if !is_required || ready.is_some_and(|it| it.status == "True") {
            return None;
        }
        let reason = ready.and_then(|it| it.reason.as_deref());
        let message = ready.and_then(|it| it.message.as_deref());
        let message = message.filter(|it| !it.is_empty());
        Some(format!(
            "cluster {cluster}: {}{}",
            reason.unwrap_or("no condition Ready yet"),
            message.map_or(String::new(), |it| format!(" ({it})")),
        ))
    });
    unready.collect()
}

fn failed(namespace: &str, phase: &str, remote: Option<&str>, unready: &[String]) -> String {
    let scope = match phase {
        "AllFailed" => "to any selected cluster",
        _ => "to all selected clusters",
    };
    let name = remote.unwrap_or("of that name");
    format!(
        "namespace {namespace} is not offloaded {scope}{}; if a namespace {name} of another owner exists there, have it deleted, or run `liqoctl unoffload namespace {namespace}` and offload it with --namespace-mapping-strategy {:?} --remote-namespace-name NAME",
        listed(": ", unready),
        MappingStrategy::SelectedName,
    )
}

fn listed(prefix: &str, items: &[String]) -> String {
    match items {
        [] => String::new(),
        items => format!("{prefix}{}", items.join("; ")),
    }
}

/// Returns the virtual nodes, or none if they cannot be read, which must not hide the warning.
pub(super) async fn virtual_nodes(cluster: &Cluster) -> Option<Vec<Node>> {
    let api = Api::<Node>::all(cluster.client.clone());
    let selector = format!("{}={}", labels::NODE_TYPE, labels::NODE_TYPE_VIRTUAL);
    cluster.list(&api, "nodes", &selector).await.ok()
}

/// Returns the warning that no cluster is selected, with the remedy.
pub(super) fn none_selected(
    namespace: &str,
    desired: &Desired<'_>,
    nodes: Option<&[Node]>,
) -> String {
    let start = format!("namespace {namespace} is offloaded to no cluster");
    if let Some([]) = nodes {
        return format!(
            "{start}, because there is no virtual node: peer with a provider (`liqoctl peer`); the namespace is offloaded then"
        );
    }
    let texts = desired.selectors.iter().map(LabelSelector::text);
    let selectors: Vec<String> = texts.map(|it| format!("{it:?}")).collect();
    let selectors = match selectors.as_slice() {
        [] => "the selector".to_owned(),
        [selector] => format!("the selector {selector}"),
        selectors => format!("the selectors {}", selectors.join(" and ")),
    };
    let nodes = nodes.unwrap_or_default();
    let mut shown: Vec<String> = nodes.iter().take(SHOWN_MAX).map(show).collect();
    if nodes.len() > SHOWN_MAX {
        shown.push(format!("and {} more", nodes.len() - SHOWN_MAX));
    }
    format!(
        "{start}: no virtual node has the labels of {selectors}{}; change the selector, or label a virtual node, which offloads the namespace",
        match shown.as_slice() {
            [] => String::new(),
            shown => format!(" (virtual nodes: {})", shown.join(", ")),
        }
    )
}

/// Returns a node with the labels that users select: those of its provider and its cluster ID.
fn show(node: &Node) -> String {
    let is_shown = |key: &str| key == labels::REMOTE_CLUSTER_ID || !labels::is_reserved(key);
    let labels = node.labels().iter();
    let shown = labels.filter(|(key, _)| is_shown(key));
    let shown: Vec<String> = shown.map(|(key, value)| format!("{key}={value}")).collect();
    format!("{} [{}]", node.name_any(), shown.join(" "))
}
