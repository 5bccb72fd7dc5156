//! A pod that the provider cannot place says why, stays, and returns with an annotation of the NamespaceOffloading.

use super::Offloaded;
use super::drain::uncordoned;
use crate::fixture::{Peering, SOON, Suite, serial};
use crate::offload::peered;
use crate::{MILAN, ROME};
use anyhow::{Result, bail, ensure};
use kubernetes_lab::cleanup::Deferred;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_pod_that_the_provider_cannot_place_says_why_and_returns_with_an_annotation,
    );
}

/// The annotation of the NamespaceOffloading.
const RETURN_AFTER: &str = "liqo.io/return-unschedulable=10s";

async fn a_pod_that_the_provider_cannot_place_says_why_and_returns_with_an_annotation(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    let offloaded = Offloaded::with_strategy([rome, milan], "unplaced", strategy).await?;
    let Offloaded { home, remote, .. } = &offloaded;
    let of_provider = cordon(remote, milan).await?;
    // Only the virtual node is left.
    let of_consumer = cordon(home, rome).await?;
    home.apply(&deployment()).await?;

    until(Deadline::after(SOON), "the cause", async || {
        let [node, condition] = [
            "{.items[*].spec.nodeName}",
            "{.items[*].status.conditions[?(@.type==\"PodScheduled\")].message}",
        ];
        let node = home.get("pods", node).await?;
        ensure!(node == MILAN, "it is on {node:?}");
        let cause = home.get("pods", condition).await?;
        ensure!(cause.contains("unschedulable"), "{cause:?}");
        Ok(())
    })
    .await?;
    let first = the_pod(home).await?;
    for node in of_consumer {
        node.run().await?;
    }
    let virtual_node = uncordoned(home, MILAN);
    home.kubectl(&["cordon", MILAN]).await?;
    let words = [
        "annotate",
        "namespaceoffloading",
        "offloading",
        RETURN_AFTER,
    ];
    home.kubectl(&words).await?;

    until(Deadline::after(SOON), "the successor", async || {
        ensure!(the_pod(home).await? != first, "{first} has not returned");
        Ok(())
    })
    .await?;
    home.rolled_out("deployment/web").await?;
    let node = home.get("pods", "{.items[*].spec.nodeName}").await?;
    ensure!(
        node.starts_with(ROME),
        "its successor is on {node}, not on a node of {ROME}"
    );
    let reasons = format!("{{.items[?(@.involvedObject.name==\"{first}\")].reason}}");
    let reasons = home.get("events", &reasons).await?;
    ensure!(reasons.contains("ReturnedUnschedulable"), "{reasons}");

    virtual_node.run().await?;
    for node in of_provider {
        node.run().await?;
    }
    home.kubectl(&["delete", "deployment", "web", "--wait"])
        .await?;
    offloaded.end().await
}

/// Cordons all nodes of a cluster until the results run.
async fn cordon(namespace: &Namespace, cluster: &Cluster) -> Result<Vec<Deferred>> {
    let mut cordons = Vec::new();
    for node in cluster.nodes() {
        cordons.push(uncordoned(namespace, node.name()));
        namespace.kubectl(&["cordon", node.name()]).await?;
    }

    Ok(cordons)
}

/// Returns the name of the pod of the Deployment that is not to end.
async fn the_pod(home: &Namespace) -> Result<String> {
    let pods = home.pods("app=web").await?;
    let [pod] = &pods[..] else {
        bail!("{pods:?}");
    };

    Ok(pod.clone())
}

fn deployment() -> String {
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": super::pod("web", &["sleep", "infinity"])["spec"],
            },
        },
    });
    deployment.to_string()
}
