//! The pods of offloaded namespaces that run in other clusters.

use crate::cluster::Cluster;
use anyhow::Result;
use control_api::labels;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;

/// Number of pods of a namespace that a message lists.
const SHOWN_MAX: usize = 5;

/// A pod on a virtual node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    namespace: String,
    name: String,
    node: String,
}

/// Returns the pods of a namespace on virtual nodes that have not ended. The virtual kubelet labels its pods.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn running(cluster: &Cluster, namespace: &str) -> Result<Vec<Running>> {
    let api = Api::<Pod>::namespaced(cluster.client.clone(), namespace);
    let selector = format!("{}=true", labels::SHADOW_POD);
    let mut pods = cluster.list(&api, "pods", &selector).await?;
    pods.sort_by_key(|pod| pod.name_any());
    Ok(pods.iter().filter_map(on_node).collect())
}

fn on_node(pod: &Pod) -> Option<Running> {
    let phase = pod.status.as_ref().and_then(|it| it.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    let node = pod.spec.as_ref().and_then(|it| it.node_name.clone())?;
    Some(Running {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        node,
    })
}

/// Returns a message that names the pods that end, or none if there are none.
pub(super) fn describe(running: &[Running]) -> Option<String> {
    let mut by_namespace: BTreeMap<&str, Vec<&Running>> = BTreeMap::new();
    for pod in running {
        by_namespace.entry(&pod.namespace).or_default().push(pod);
    }
    if by_namespace.is_empty() {
        return None;
    }
    let of_namespace = by_namespace.iter().map(|(namespace, pods)| {
        let names = pods.iter().take(SHOWN_MAX);
        let mut shown: Vec<String> = names
            .map(|pod| format!("{} on {}", pod.name, pod.node))
            .collect();
        if pods.len() > SHOWN_MAX {
            shown.push(format!("{} more", pods.len() - SHOWN_MAX));
        }
        format!("{namespace} ({})", shown.join(", "))
    });
    let namespaces: Vec<String> = of_namespace.collect();
    Some(format!(
        "the pods on virtual nodes are deleted, and the objects of their namespaces in other clusters: {}",
        namespaces.join("; ")
    ))
}
