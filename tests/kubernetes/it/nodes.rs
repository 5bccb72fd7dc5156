//! Nodes that are drained, die and come back.

use crate::fixture::{Clusters, Suite, serial};
use anyhow::{Result, ensure};
use kubernetes_lab::cleanup::{self, Deferred};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{self, Deadline};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_drained_node_is_left_by_its_pods,
        a_killed_node_is_missed_and_comes_back_with_its_data,
        a_node_that_is_shut_down_comes_back,
    );
}

/// The controller manager misses a kubelet after 50 s (`--node-monitor-grace-period`).
const MISSED: Duration = Duration::from_secs(90);

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

async fn a_drained_node_is_left_by_its_pods(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("drain").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    ensure!(
        nodes_of(&namespace).await?.contains("it-rome-worker"),
        "none was there"
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
    wait::until(Deadline::after(MISSED), "all to be elsewhere", async || {
        namespace.rolled_out("deployment/sleepers").await?;
        let nodes = nodes_of(&namespace).await?;
        ensure!(!nodes.contains("it-rome-worker"), "{nodes}");
        Ok(())
    })
    .await
}

async fn a_killed_node_is_missed_and_comes_back_with_its_data(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = Namespace::create(&clusters.milan, "killed").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    let node = clusters.milan.node(1);
    node.exec("sh", &["-c", "echo kept >/var/lib/lab/kept"])?;

    let power = power(&node);
    node.kill()?;
    ensure!(node.pid().is_none(), "it runs");
    ready(&clusters.milan, node.name(), "Unknown").await?;
    power.run().await?;

    ready(&clusters.milan, node.name(), "True").await?;
    ensure!(
        node.exec("cat", &["/var/lib/lab/kept"])? == "kept\n",
        "its data is gone"
    );
    namespace.rolled_out("deployment/sleepers").await?;
    Ok(())
}

async fn a_node_that_is_shut_down_comes_back(clusters: &'static Clusters) -> Result<()> {
    let namespace = Namespace::create(&clusters.milan, "shut-down").await?;
    let node = clusters.milan.node(1);

    let power = power(&node);
    node.stop()?;
    ensure!(node.pid().is_none(), "it runs");
    let log = std::fs::read_to_string(node.folder().join("init.log"))?;
    ensure!(
        log.contains("kubelet ended"),
        "its components were not asked: {log}"
    );
    power.run().await?;

    ready(&clusters.milan, node.name(), "True").await?;
    namespace.apply(SLEEPERS).await?;
    namespace.rolled_out("deployment/sleepers").await?;
    ensure!(
        nodes_of(&namespace).await?.contains(node.name()),
        "no pod is there"
    );
    Ok(())
}

/// Starts a node that is stopped later: when the result runs, at the latest after the test.
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

async fn ready(cluster: &Cluster, node: &str, wanted: &str) -> Result<()> {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
    wait::until(
        Deadline::after(MISSED),
        &format!("{node} to be {wanted}"),
        async || {
            let output = cluster
                .kubectl()
                .args(["get", "node", node, "-o", path])
                .output()?;
            let is = String::from_utf8(output.stdout)?;
            ensure!(is == wanted, "it is {is}");
            Ok(())
        },
    )
    .await
}
