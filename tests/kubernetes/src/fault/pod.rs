//! Disconnects pods from the network, and reconnects them.

use crate::cluster::Cluster;
use crate::host;
use crate::node::Node;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

/// The nftables table with the addresses of a node's disconnected pods.
const TABLE: &str = "lab-fault";

/// Disconnects a pod from all networks including its node, or reconnects it.
///
/// # Errors
///
/// Returns an error if the pod does not exist, or if it uses the network of its node.
pub async fn set_pod_network(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    connected: bool,
) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(cluster.client().await?, namespace);
    let pod = api
        .get(name)
        .await
        .with_context(|| format!("no pod {namespace}/{name} in {}", cluster.name()))?;
    let spec = pod.spec.context("a pod has a spec")?;
    ensure!(
        spec.host_network != Some(true),
        "pod {namespace}/{name} uses the network of its node: disconnect the node instead"
    );
    let status = pod.status.context("the pod has no status")?;
    let address = status.pod_ip.context("the pod has no address")?;
    let node = Node::find(&spec.node_name.context("the pod is not scheduled")?)?;

    // With a set of addresses, the change is idempotent and does not affect other pods.
    let verb = if connected { "delete" } else { "add" };
    let rules = format!(
        "table inet {TABLE} {{
  set pods {{ type ipv4_addr; }}
  chain prerouting {{
    type filter hook prerouting priority raw; policy accept;
    ip saddr @pods drop
    ip daddr @pods drop
  }}
  chain output {{
    type filter hook output priority raw; policy accept;
    ip daddr @pods drop
  }}
}}
"
    );
    let tables = node.exec("nft", &["list", "tables"])?;
    if !tables.contains(&format!("inet {TABLE}")) {
        if connected {
            return Ok(());
        }
        host::checked(node.command("nft")?.args(["-f", "-"]), &rules)?;
    }
    let elements = format!("{{ {address} }}");
    node.exec("nft", &[verb, "element", "inet", TABLE, "pods", &elements])
        .map(drop)
}
