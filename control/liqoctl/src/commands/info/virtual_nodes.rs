//! Reads the virtual nodes with what they run.

use super::boxes::Item;
use super::workload::{Objects, Workload};
use crate::cluster::{Cluster, list_by_fields};
use crate::failure::if_permitted;
use anyhow::Result;
use control_api::{NamespaceMap, VirtualNode, labels};
use futures_util::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// A virtual node in the report of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    name: String,
    provider: String,
    workload: Workload,
}

/// Reads all virtual nodes; none if the user may not list them.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn all(cluster: &Cluster) -> Result<Vec<Summary>> {
    let api = Api::<VirtualNode>::all(cluster.client.clone());
    let listed = if_permitted(cluster.list(&api, "VirtualNodes", "").await)?;
    let mut nodes = listed.unwrap_or_default();
    nodes.sort_by_key(|node| node.name_any());
    let workloads = workloads(cluster, &nodes).await?;
    let summaries = nodes.iter().zip(workloads).map(|(node, workload)| Summary {
        name: node.name_any(),
        provider: node.spec.cluster_id.clone().unwrap_or_default(),
        workload,
    });
    Ok(summaries.collect())
}

/// Returns what each of the virtual nodes runs, in their order.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn workloads(
    cluster: &Cluster,
    virtual_nodes: &[VirtualNode],
) -> Result<Vec<Workload>> {
    if virtual_nodes.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = Api::<Node>::all(cluster.client.clone());
    let maps = Api::<NamespaceMap>::all(cluster.client.clone());
    let of_virtual_nodes = format!("{}={}", labels::NODE_TYPE, labels::NODE_TYPE_VIRTUAL);
    let own = format!("{}=true", labels::REPLICATION);
    let (nodes, maps, pods) = tokio::try_join!(
        async { if_permitted(cluster.list(&nodes, "Nodes", &of_virtual_nodes).await) },
        async { if_permitted(cluster.list(&maps, "NamespaceMaps", &own).await) },
        try_join_all(virtual_nodes.iter().map(|node| pods(cluster, node))),
    )?;
    let workload = |(virtual_node, pods): (&VirtualNode, &Option<Vec<Pod>>)| {
        let name = virtual_node.name_any();
        let provider = virtual_node.spec.cluster_id.as_deref().unwrap_or_default();
        let is_map = |map: &&NamespaceMap| {
            map.name_any() == provider && map.namespace() == virtual_node.namespace()
        };
        Workload::of(Objects {
            virtual_node,
            node: nodes
                .as_ref()
                .map(|all| all.iter().find(|it| it.name_any() == name)),
            pods: pods.as_deref(),
            map: maps.as_ref().map(|all| all.iter().find(is_map)),
        })
    };
    Ok(virtual_nodes.iter().zip(&pods).map(workload).collect())
}

/// Lists the pods that are bound to a virtual node, in all namespaces.
async fn pods(cluster: &Cluster, node: &VirtualNode) -> Result<Option<Vec<Pod>>> {
    let api = Api::<Pod>::all(cluster.client.clone());
    let selector = format!("spec.nodeName={}", node.name_any());
    let listed = list_by_fields(&api, &selector).await;
    if_permitted(listed.map_err(cluster.failed("list Pods")))
}

impl Summary {
    /// Returns the summary for `-o` and `--get`.
    pub(super) fn value(&self) -> Value {
        let mut value = json!({"name": self.name, "clusterID": self.provider});
        self.workload.add_to(&mut value);
        value
    }

    /// Returns the summary for boxes.
    pub(super) fn item(&self) -> Item {
        let mut items = vec![Item::entry("Provider", &self.provider)];
        items.extend(self.workload.items());
        Item::section(&self.name, items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};

    const TENANT: &str = "/apis/offloading.liqo.io/v1beta1/namespaces/liqo-tenant-milan";

    fn rome() -> ApiServer {
        let server = ApiServer::start();
        server.put(
            &format!("{TENANT}/virtualnodes/milan"),
            json!({
                "apiVersion": "offloading.liqo.io/v1beta1", "kind": "VirtualNode",
                "metadata": {"name": "milan", "namespace": "liqo-tenant-milan"},
                "spec": {"clusterID": "milan"},
            }),
        );
        server.put(
            &format!("{TENANT}/namespacemaps/milan"),
            json!({
                "apiVersion": "offloading.liqo.io/v1beta1", "kind": "NamespaceMap",
                "metadata": {
                    "name": "milan", "namespace": "liqo-tenant-milan",
                    "labels": {"liqo.io/replication": "true"},
                },
                "spec": {"desiredMapping": {"demo": "demo-rome"}},
            }),
        );
        server.put(
            "/api/v1/nodes/milan",
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "milan", "labels": {"liqo.io/type": "virtual-node"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
        for (name, node) in [("web", "milan"), ("db", "rome-worker")] {
            server.put(
                &format!("/api/v1/namespaces/demo/pods/{name}"),
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": "demo"},
                    "spec": {"nodeName": node, "containers": []}, "status": {"phase": "Running"},
                }),
            );
        }
        server
    }

    #[tokio::test]
    async fn the_pods_of_a_virtual_node_are_those_that_are_bound_to_it() {
        let server = rome();
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");

        let summaries = all(&cluster).await.unwrap();

        let value = summaries[0].value();
        assert_eq!(summaries.len(), 1);
        assert_eq!(
            (&value["name"], &value["clusterID"]),
            (&json!("milan"), &json!("milan"))
        );
        assert_eq!(value["pods"]["running"], 1);
        assert_eq!(value["node"]["ready"], true);
        assert_eq!(value["namespaces"][0]["remoteName"], "demo-rome");
    }

    #[tokio::test]
    async fn a_user_who_may_list_no_pods_sees_the_other_parts() {
        let server = rome();
        let front = Front::start(&server, |head| match head.target.contains("/pods") {
            true => Reply::status(403, "Forbidden", "pods is forbidden"),
            false => Reply::Forward,
        });
        let cluster = Cluster::behind(&front, "local");

        let value = all(&cluster).await.unwrap()[0].value();

        assert!(value["pods"].is_null() && value["node"]["ready"] == true);
    }
}
