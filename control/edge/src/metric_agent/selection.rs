//! Which kubelets a scrape asks, and which pods on their nodes the consumer may see.

use super::filter::{NodePods, Visible};
use super::objects::{KeptNamespace, KeptNode, KeptPod, ORIGIN};
use super::route::Endpoint;
use control_runtime::{Cache, Cluster, Key};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The requests of one scrape.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Selection {
    /// The kubelets to ask, by the names of their nodes.
    pub(super) kubelets: BTreeMap<String, Kubelet>,
    /// Nodes whose kubelet is not asked although it may have samples, by name.
    pub(super) skipped: BTreeMap<String, Skipped>,
}

/// A kubelet to ask.
#[derive(Debug, PartialEq)]
pub(super) struct Kubelet {
    pub(super) address: SocketAddr,
    /// The consumer's pods on the node.
    pub(super) pods: NodePods,
}

/// Why a kubelet is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skipped {
    /// The Node is not Ready, so its kubelet rarely responds in time.
    NotReady,
    /// The Node has no InternalIP or no port of its kubelet.
    NoEndpoint,
}

impl Skipped {
    /// Returns the value of a label.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::NoEndpoint => "no_endpoint",
        }
    }
}

impl Selection {
    /// Selects the kubelets of real nodes for these metrics of a consumer. All of them report the totals of their nodes;
    /// of the others, only those with pods of the consumer are asked.
    pub(super) fn of(cache: &Cache, consumer: &str, endpoint: Endpoint) -> Self {
        let mut pods = pods(cache, consumer);
        let mut selection = Self::default();
        for (key, node) in cache.objects::<KeptNode>(&Cluster::Local).iter() {
            let pods = pods.remove(&key.name).unwrap_or_default();
            if node.is_virtual || (pods.is_empty() && !endpoint.has_totals()) {
                continue;
            }
            let name = key.name.clone();
            match node.kubelet {
                _ if !node.is_ready => {
                    selection.skipped.insert(name, Skipped::NotReady);
                }
                None => {
                    selection.skipped.insert(name, Skipped::NoEndpoint);
                }
                Some(address) => {
                    selection.kubelets.insert(name, Kubelet { address, pods });
                }
            }
        }
        selection
    }
}

/// Returns the cluster IDs of all peers that have a namespace here.
pub(super) fn peers(cache: &Cache) -> BTreeSet<&str> {
    let namespaces = cache.objects::<KeptNamespace>(&Cluster::Local).iter();
    namespaces.map(|(_, it)| it.peer.as_str()).collect()
}

/// Returns the pods of a consumer in its own namespaces, by node.
fn pods(cache: &Cache, consumer: &str) -> BTreeMap<String, NodePods> {
    let mut nodes: BTreeMap<String, NodePods> = BTreeMap::new();
    let pods = cache.objects::<KeptPod>(&Cluster::Local);
    for (key, pod) in pods.indexed(ORIGIN, consumer) {
        // A label of a pod alone proves nothing: users of this cluster may set it.
        let namespace = cache.local::<KeptNamespace>(&Key::new("", &*key.namespace));
        let namespace = namespace.filter(|it| it.peer == consumer);
        let Some(original) = namespace.and_then(|it| it.original.as_ref()) else {
            continue;
        };
        let of_node = nodes.entry(pod.node.clone()).or_default();
        let visible = of_node
            .entry(key.namespace.clone())
            .or_insert_with(|| Visible {
                original: original.clone(),
                pods: BTreeSet::new(),
            });
        visible.pods.insert(key.name.clone());
    }
    nodes
}

#[cfg(test)]
mod tests;
