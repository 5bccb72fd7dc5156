//! Tests of nodes that are drained, killed, shut down and restarted.

use crate::fixture::{Clusters, Suite, serial};
use anyhow::{Result, ensure};
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{self, Deadline, SOON};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_leave_a_drained_node,
        a_killed_node_becomes_unknown_and_returns_with_its_data,
        a_node_that_is_shut_down_can_be_restarted,
    );
}

/// The time within which the Ready condition of a killed node must change. The controller manager
/// detects a missing kubelet after 50 s (`--node-monitor-grace-period`).
const MISSED: Duration = Duration::from_secs(50 + SOON.as_secs());

const SLEEPERS: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: sleepers
spec:
  replicas: 4
  selector:
    matchLabels:
      app: sleepers
  template:
    metadata:
      labels:
        app: sleepers
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: sleeper
          image: localhost/tools:latest
          imagePullPolicy: IfNotPresent
          command: [sleep, infinity]
";

async fn pods_leave_a_drained_node(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("drain").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    ensure!(
        nodes_of(&namespace).await?.contains("it-rome-worker"),
        "no pod is on the worker"
    );

    let cluster = namespace.clone();
    cleanup::defer("cordon of it-rome-worker", async move || {
        let words = ["uncordon", "it-rome-worker"];
        cluster.kubectl(&words).await.map(drop)
    });
    let options = [
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=60s",
    ];
    namespace
        .kubectl(&[&["drain", "it-rome-worker"][..], &options].concat())
        .await?;
    wait::until(
        Deadline::after(MISSED),
        "all pods to be on another node",
        async || {
            namespace.rolled_out("deployment/sleepers").await?;
            let nodes = nodes_of(&namespace).await?;
            ensure!(!nodes.contains("it-rome-worker"), "{nodes}");
            Ok(())
        },
    )
    .await
}

async fn a_killed_node_becomes_unknown_and_returns_with_its_data(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = Namespace::create(&clusters.milan, "killed").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    let node = clusters.milan.node(1);
    node.exec("sh", &["-c", "echo kept >/var/lib/lab/kept"])?;

    let power = power(&node);
    node.kill()?;
    ensure!(node.pid().is_none(), "the node runs");
    ready(&clusters.milan, node.name(), "Unknown").await?;
    power.run().await?;

    ready(&clusters.milan, node.name(), "True").await?;
    ensure!(
        node.exec("cat", &["/var/lib/lab/kept"])? == "kept\n",
        "the data is lost"
    );
    namespace.rolled_out("deployment/sleepers").await?;
    Ok(())
}

async fn a_node_that_is_shut_down_can_be_restarted(clusters: &'static Clusters) -> Result<()> {
    let namespace = Namespace::create(&clusters.milan, "shut-down").await?;
    let node = clusters.milan.node(1);

    let power = power(&node);
    node.stop()?;
    ensure!(node.pid().is_none(), "the node runs");
    let log = std::fs::read_to_string(node.folder().join("init.log"))?;
    ensure!(
        log.contains("kubelet ended"),
        "its components were not stopped: {log}"
    );
    power.run().await?;

    ready(&clusters.milan, node.name(), "True").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    ensure!(
        nodes_of(&namespace).await?.contains(node.name()),
        "no pod is on the node"
    );
    Ok(())
}

/// Registers a cleanup that restarts a node, before the test stops the node.
fn power(node: &Node) -> Deferred {
    let node = node.clone();
    cleanup::defer(format!("power of {}", node.name()), async move || {
        node.restart()
    })
}

async fn nodes_of(namespace: &Namespace) -> Result<String> {
    let path = "{range .items[?(@.status.phase==\"Running\")]}{.spec.nodeName} {end}";
    namespace.get("pods", path).await
}

async fn ready(cluster: &Cluster, node: &str, expected: &str) -> Result<()> {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    wait::until(
        Deadline::after(MISSED),
        &format!("condition Ready of {node} to be {expected}"),
        async || {
            let output = cluster
                .kubectl()
                .args(["get", "node", node, "-o", path])
                .output()?;
            let is = String::from_utf8(output.stdout)?;
            ensure!(is == expected, "it is {is}");
            Ok(())
        },
    )
    .await
}
