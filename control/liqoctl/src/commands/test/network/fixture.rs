//! The running pods of the test, and the nodes.

use super::objects::{APP, NAMESPACE, NODES, PODS};
use crate::cluster::Cluster;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::labels;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use std::net::Ipv4Addr;

/// Label of nodes with a control plane.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The pods and nodes of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fixture {
    /// The servers, which also send requests.
    pub(crate) pods: Vec<TestPod>,
    /// The clients in the host network.
    pub(crate) on_nodes: Vec<TestPod>,
    /// The nodes.
    pub(crate) nodes: Vec<TestNode>,
}

/// A pod of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestPod {
    pub(crate) name: String,
    pub(crate) node: String,
    pub(crate) address: Ipv4Addr,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestNode {
    pub(crate) name: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) is_control_plane: bool,
}

/// Waits until a pod of each kind is ready on every node.
///
/// # Errors
///
/// Returns an error that names the missing pods at the deadline.
pub(crate) async fn ready(cluster: &Cluster, deadline: Deadline) -> Result<Fixture> {
    let sets = Api::<DaemonSet>::namespaced(cluster.client.clone(), NAMESPACE);
    deadline
        .until("starting the test pods", async || {
            let sets = cluster.list(&sets, "DaemonSets", "").await?;
            let missing = sets.iter().find(|set| !is_ready(set));
            Ok(match missing {
                None if sets.len() >= 2 => Found::Ready(()),
                None => Found::Missing("the DaemonSets do not exist".to_owned()),
                Some(set) => Found::Missing(format!(
                    "DaemonSet {} in namespace {NAMESPACE} of {} is not ready (check that every node can pull --image, and that it has the needed programs)",
                    set.name_any(),
                    cluster.place()
                )),
            })
        })
        .await?;
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), NAMESPACE);
    let nodes = Api::<Node>::all(cluster.client.clone());
    let (pods_selector, nodes_selector) = (format!("{APP}={PODS}"), format!("{APP}={NODES}"));
    let (servers, clients, nodes) = tokio::try_join!(
        cluster.list(&pods, "Pods", &pods_selector),
        cluster.list(&pods, "Pods", &nodes_selector),
        cluster.list(&nodes, "Nodes", ""),
    )?;
    Ok(Fixture {
        pods: servers.iter().filter_map(pod).collect(),
        on_nodes: clients.iter().filter_map(pod).collect(),
        nodes: nodes.iter().filter_map(node).collect(),
    })
}

fn is_ready(set: &DaemonSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    let desired = status.desired_number_scheduled;
    status.observed_generation >= set.metadata.generation
        && desired > 0
        && status.number_ready >= desired
        && status.updated_number_scheduled.unwrap_or_default() >= desired
}

fn pod(pod: &Pod) -> Option<TestPod> {
    if pod.metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(TestPod {
        name: pod.name_any(),
        node: pod.spec.as_ref()?.node_name.clone()?,
        address: pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?,
    })
}

fn node(node: &Node) -> Option<TestNode> {
    let type_ = node.labels().get(labels::NODE_TYPE);
    if type_.is_some_and(|type_| type_ == labels::NODE_TYPE_VIRTUAL) {
        return None;
    }
    let addresses = node.status.as_ref()?.addresses.as_ref()?;
    let internal = addresses
        .iter()
        .filter(|address| address.type_ == "InternalIP")
        .find_map(|address| address.address.parse().ok())?;
    Some(TestNode {
        name: node.name_any(),
        address: internal,
        is_control_plane: node.labels().contains_key(CONTROL_PLANE),
    })
}
