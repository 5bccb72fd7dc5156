//! A pod without a network.

use crate::cluster::Cluster;
use crate::host;
use crate::node::Node;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

/// The table of a node that holds what is cut off.
const TABLE: &str = "lab-fault";

/// Cuts a pod off everything, its own node included, or puts it back.
///
/// # Errors
///
/// Returns an error if there is no such pod, or it has no network of its own.
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
        "pod {namespace}/{name} is in its node's network: cut the node off instead"
    );
    let status = pod.status.context("the pod has no status yet")?;
    let address = status.pod_ip.context("the pod has no address yet")?;
    let node = Node::find(&spec.node_name.context("the pod is on no node yet")?)?;

    // Sets, so that cutting twice is no fault and one pod does not connect another.
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
