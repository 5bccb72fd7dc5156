//! Nodes that join and leave an existing cluster.

use super::{Cluster, Options, registry, up};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;

impl Cluster {
    /// Adds a node, waits until the node is ready, and returns the new state of the cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if the CIDRs have no room for the node, or if the node does not become
    /// ready.
    pub async fn add_node(&self) -> Result<Self> {
        let grown = self.with_nodes(self.spec.nodes.saturating_add(1))?;
        registry::write(&grown)?;

        up(grown.spec.clone(), &grown.artifacts(), &Options::default()).await
    }

    /// Kills the last node, removes its state and its Node object, and returns the new state of the
    /// cluster.
    ///
    /// # Errors
    ///
    /// Returns an error if this node is the only one, or if a part of the node cannot be removed.
    pub async fn remove_node(&self) -> Result<Self> {
        let shrunk = self.with_nodes(self.spec.nodes.saturating_sub(1))?;
        let specs = self.node_specs()?;
        let left = specs.last().context("a cluster has nodes")?;
        self.node(shrunk.spec.nodes).remove()?;
        // A running kubelet would create the Node object again, so the kubelet has to end first.
        let api: Api<Node> = Api::all(self.client().await?);
        api.delete(&left.name, &DeleteParams::default())
            .await
            .with_context(|| format!("failed to delete the Node {}", left.name))?;
        for node in shrunk.nodes() {
            node.remove_routes_to(left)?;
        }
        registry::write(&shrunk)?;

        Ok(shrunk)
    }

    fn with_nodes(&self, nodes: u8) -> Result<Self> {
        let mut cluster = self.clone();
        cluster.spec.nodes = nodes;
        cluster.spec.check()?;
        ensure!(
            cluster.spec.node_prefix_len() == self.spec.node_prefix_len(),
            "{} nodes need smaller pod CIDRs than {}: create the cluster with more nodes",
            nodes,
            self.spec.nodes
        );

        Ok(cluster)
    }
}
