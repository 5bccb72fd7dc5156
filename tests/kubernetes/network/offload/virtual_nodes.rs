//! Virtual nodes in both directions between two clusters.

use super::{is_gone, is_offloaded, peered, until_node_is_ready};
use crate::fixture::{Peering, Suite, liqoctl, serial};
use crate::peering::{between, peer, unpeer};
use crate::removal::kubectl;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use serde_json::json;

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, two_clusters_are_consumers_of_each_other);
}

/// Returns the manifest of a pod on a node.
fn pod(name: &str, node: &str) -> String {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "sleep",
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "infinity"],
                "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
            }],
        },
    });
    pod.to_string()
}

async fn two_clusters_are_consumers_of_each_other(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    peer([milan, rome], &["--cpu=2", "--memory=2Gi"])?;
    until_node_is_ready([milan, rome]).await?;
    let mut namespaces = Vec::new();
    for pair in [[rome, milan], [milan, rome]] {
        let [consumer, provider] = pair;
        let namespace = Namespace::create(consumer, "mutual").await?;
        let strategy = "--pod-offloading-strategy=Remote";
        liqoctl(consumer, &["offload", "namespace", "mutual", strategy])?;
        let path = "jsonpath={.metadata.labels.liqo\\.io/remote-cluster-id}";
        let remote = format!("mutual-{}", consumer.name());
        let origin = kubectl(provider, &["get", "namespace", &remote, "-o", path])?;
        ensure!(origin == consumer.name(), "{origin}");
        namespaces.push((namespace, pair));
    }

    for (namespace, [_, provider]) in &namespaces {
        namespace.apply(&pod("there", provider.name())).await?;
    }
    for (namespace, [_, provider]) in &namespaces {
        namespace.wait("pod/there", "Ready").await?;
        is_offloaded(namespace, provider, "there").await?;
    }
    // Each direction ends without the other one.
    for (namespace, pair) in namespaces {
        let [consumer, provider] = pair;
        let unoffload = ["unoffload", "namespace", "mutual", "--skip-confirm"];
        liqoctl(consumer, &unoffload)?;
        is_gone(provider, &format!("mutual-{}", consumer.name()))?;
        namespace
            .kubectl(&["delete", "pods", "--all", "--wait"])
            .await?;
    }
    between([milan, rome], &["unpeer"])?;
    until_node_is_ready([rome, milan]).await?;
    unpeer([rome, milan], &[]).await
}
