//! Several virtual nodes: two of one provider, and one in each direction between two clusters.

use super::{is_gone, is_offloaded, peered, until_node_is_ready};
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::{between, peer, unpeer};
use crate::removal::kubectl;
use crate::{MILAN, ROME};
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        two_virtual_nodes_of_a_provider_are_charged_to_their_own_quotas,
        two_clusters_are_consumers_of_each_other,
    );
}

/// The second slice of the provider, whose virtual node has one CPU.
const SECOND: &str = "second";

/// More than half of the CPU of the second slice.
const CPU: &str = "600m";

async fn two_virtual_nodes_of_a_provider_are_charged_to_their_own_quotas(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let provider = format!("--remote-cluster-id={MILAN}");
    let create = ["create", "resourceslice", SECOND, &provider];
    liqoctl(rome, &[&create[..], &["--cpu=1", "--memory=1Gi"]].concat())?;
    let slices = Namespace::create(rome, "slices").await?;
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(rome, &["offload", "namespace", "slices", strategy])?;
    let remote = Namespace::existing(milan, &format!("slices-{ROME}")).await?;
    let node = format!("node/{SECOND}");
    slices
        .kubectl(&["wait", &node, "--for=create", "--timeout=60s"])
        .await?;
    slices.wait(&node, "Ready").await?;
    let capacity = slices.get(&node, "{.status.capacity.cpu}").await?;
    ensure!(capacity == "1", "{capacity}");

    // The node is set by the test, because the scheduler would not place the third pod.
    for (name, node) in [("one", SECOND), ("other", MILAN)] {
        slices.apply(&pod(name, node)).await?;
        slices.wait(&format!("pod/{name}"), "Ready").await?;
    }
    slices.apply(&pod("too-many", SECOND)).await?;
    let refused = "an Event that names the resource";
    until(Deadline::after(SOON), refused, async || {
        let path = "{range .items[?(@.reason==\"FailedCreatePod\")]}{.involvedObject.name}: {.message}\n{end}";
        let events = remote.get("events", path).await?;
        let expected = "exceeded quota: cpu, requested 0.6, used 0.6, limited 1";
        ensure!(
            events.contains("too-many") && events.contains(expected),
            "{events:?}"
        );
        Ok(())
    })
    .await?;
    slices.apply(&pod("beside", MILAN)).await?;
    slices.wait("pod/beside", "Ready").await?;
    let phase = slices.get("pod/too-many", "{.status.phase}").await?;
    ensure!(phase == "Pending", "{phase}");
    for (name, node) in [("one", SECOND), ("other", MILAN), ("beside", MILAN)] {
        let creator = remote
            .get(
                &format!("pod/{name}"),
                "{.metadata.labels.offloading\\.liqo\\.io/nodename}",
            )
            .await?;
        ensure!(creator == node, "{name} is of {creator}");
    }

    slices.kubectl(&["delete", "pod", "one"]).await?;
    slices.wait("pod/too-many", "Ready").await?;

    liqoctl(
        rome,
        &["unoffload", "namespace", "slices", "--skip-confirm"],
    )?;
    is_gone(milan, remote.name())?;
    slices
        .kubectl(&["delete", "pods", "--all", "--wait"])
        .await?;
    unpeer([rome, milan], &[]).await
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
                "resources": {"requests": {"cpu": CPU, "memory": "16Mi"}},
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
