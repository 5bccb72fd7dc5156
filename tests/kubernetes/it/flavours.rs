//! Tests of clusters with settings other than the defaults.

use crate::fixture::{Clusters, Suite, artifacts, serial};
use crate::workloads::web;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::{self, Cluster, Options};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::{KubeProxy, Spec};
use kubernetes_lab::wait::{self, Deadline, SOON};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_cluster_with_ipv6_iptables_and_other_networks,
        a_cluster_with_a_hundred_hollow_nodes_and_no_kube_proxy,
    );
}

async fn a_cluster_with_ipv6_iptables_and_other_networks(_: &'static Clusters) -> Result<()> {
    let mut spec = Spec::new("it-oslo");
    spec.pod_cidr = "10.32.0.0/16".parse()?;
    spec.service_cidr = "10.33.0.0/16".parse()?;
    spec.kube_proxy = KubeProxy::Iptables;
    spec.ipv6 = true;

    let cluster = up(spec).await?;
    let namespace = Namespace::create(&cluster, "flavour").await?;
    let [a, b] = web(&namespace).await?;
    let path = "{range .status.podIPs[*]}{.ip} {end}";
    let ips = namespace.get(&format!("pod/{b}"), path).await?;
    let [v4, v6] = ips.split_whitespace().collect::<Vec<_>>()[..] else {
        anyhow::bail!("not one address of each family: {ips}");
    };
    ensure!(v4.starts_with("10.32."), "{v4}");
    let curl = |url: &str| format!("curl -sS -m 5 '{url}'");
    let answer = namespace
        .sh(&a, &curl(&format!("http://[{v6}]:8080/")))
        .await?;
    ensure!(answer.contains(&format!("pod={b}")), "{answer}");

    let patch = "{\"spec\":{\"ipFamilyPolicy\":\"PreferDualStack\"}}";
    namespace
        .kubectl(&["patch", "service", "web", "-p", patch])
        .await?;
    let addresses = namespace.get("service/web", "{.spec.clusterIPs}").await?;
    ensure!(
        addresses.contains("10.33.") && addresses.contains("fd00:10:96::"),
        "{addresses}"
    );
    namespace.sh(&a, &curl("http://web/")).await?;
    let rules = cluster.node(0).exec("iptables-save", &["-t", "nat"])?;
    ensure!(
        rules.contains("KUBE-SERVICES"),
        "kube-proxy has created no rules"
    );

    Ok(())
}

async fn a_cluster_with_a_hundred_hollow_nodes_and_no_kube_proxy(
    _: &'static Clusters,
) -> Result<()> {
    let mut spec = Spec::new("it-kiruna");
    spec.nodes = 1;
    spec.hollow = 100;
    spec.kube_proxy = KubeProxy::None;

    let cluster = up(spec).await?;
    let namespace = Namespace::create(&cluster, "hollow").await?;
    wait::until(Deadline::after(SOON), "all nodes to be ready", async || {
        let nodes = namespace.kubectl(&["get", "nodes", "--no-headers"]).await?;
        let ready = nodes.matches(" Ready ").count();
        ensure!(ready == 101, "{ready} are");
        Ok(())
    })
    .await?;
    namespace.apply(CROWD).await?;
    namespace.rolled_out("deployment/crowd").await?;

    let path = "{range .items[*]}{.spec.nodeName} {end}";
    let nodes = namespace.get("pods", path).await?;
    ensure!(nodes.split_whitespace().count() == 200, "{nodes}");
    ensure!(
        nodes
            .split_whitespace()
            .all(|node| node.contains("-hollow")),
        "{nodes}"
    );
    let components = cluster.components()?;
    let (_, states) = components.first().context("the cluster has no node")?;
    ensure!(
        !states.iter().any(|state| state.name == "kube-proxy"),
        "kube-proxy runs"
    );

    Ok(())
}

/// A Deployment of 200 pods that select hollow nodes and tolerate their taint.
const CROWD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: crowd
spec:
  replicas: 200
  selector:
    matchLabels:
      app: crowd
  template:
    metadata:
      labels:
        app: crowd
    spec:
      nodeSelector:
        type: kwok
      tolerations:
        - key: kwok.x-k8s.io/node
          operator: Exists
      containers:
        - name: nothing
          image: localhost/nothing:1
";

/// Creates a cluster, which is removed after the test.
async fn up(spec: Spec) -> Result<Cluster> {
    let name = spec.name.clone();
    cleanup::defer(
        format!("cluster {name}"),
        async move || match cluster::names()?.contains(&name) {
            true => cluster::remove(&name),
            false => Ok(()),
        },
    );

    cluster::up(spec, &artifacts()?, &Options::default()).await
}
