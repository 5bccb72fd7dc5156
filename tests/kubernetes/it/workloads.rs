//! Tests of Deployments, Jobs, and traffic between pods.

use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{self, Deadline, SOON};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_deployment_spreads_over_both_nodes,
        pods_of_two_nodes_communicate_without_nat,
        pods_of_both_clusters_have_the_same_addresses,
        pods_of_two_namespaces_communicate_without_a_policy,
        a_job_completes,
        a_pod_that_exceeds_its_memory_limit_is_killed,
    );
}

/// Two pods on different nodes, and their Service. The pods respond with client, pod and node.
pub(crate) const WEB: &str = include_str!("manifests/web.yaml");

/// Applies [`WEB`], and returns the names of both pods.
pub(crate) async fn web(namespace: &Namespace) -> Result<[String; 2]> {
    namespace.apply(WEB).await?;
    namespace.rolled_out("deployment/web").await?;
    let pods = namespace.pods("app=web").await?;
    ensure!(pods.len() == 2, "{pods:?}");

    pods.try_into().ok().context("not two pods")
}

async fn a_deployment_spreads_over_both_nodes(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("deployment").await?;

    let [a, b] = web(&namespace).await?;

    let node = async |pod: &str| {
        namespace
            .get(&format!("pod/{pod}"), "{.spec.nodeName}")
            .await
    };
    let mut nodes = [node(&a).await?, node(&b).await?];
    nodes.sort();
    ensure!(
        nodes == ["it-rome-control-plane", "it-rome-worker"],
        "{nodes:?}"
    );
    Ok(())
}

async fn pods_of_two_nodes_communicate_without_nat(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("pod-to-pod").await?;
    let [a, b] = web(&namespace).await?;
    let ip = async |pod: &str| {
        namespace
            .get(&format!("pod/{pod}"), "{.status.podIP}")
            .await
    };
    let [from, to] = [ip(&a).await?, ip(&b).await?];

    let response = namespace
        .sh(&a, &format!("curl -sS -m 5 http://{to}:8080/"))
        .await?;

    ensure!(response.contains(&format!("client={from}:")), "{response}");
    ensure!(response.contains(&format!("pod={b}")), "{response}");
    Ok(())
}

async fn pods_of_both_clusters_have_the_same_addresses(clusters: &'static Clusters) -> Result<()> {
    let mut networks = Vec::new();
    for cluster in [&clusters.rome, &clusters.milan] {
        let namespace = Namespace::create(cluster, "same-addresses").await?;
        web(&namespace).await?;
        let path = "{range .items[*]}{.status.podIP} {end}";
        let ips = namespace.get("pods", path).await?;
        let mut seen: Vec<_> = ips
            .split_whitespace()
            .filter_map(|ip| Some(ip.rsplit_once('.')?.0.to_owned()))
            .collect();
        seen.sort();
        networks.push(seen);
    }

    ensure!(networks[0] == ["10.244.0", "10.244.1"], "{networks:?}");
    ensure!(networks[0] == networks[1], "{networks:?}");
    Ok(())
}

async fn pods_of_two_namespaces_communicate_without_a_policy(
    clusters: &'static Clusters,
) -> Result<()> {
    let server = clusters.namespace("policy-server").await?;
    let client = clusters.namespace("policy-client").await?;
    web(&server).await?;
    let [pod, _] = web(&client).await?;

    let url = "http://web.policy-server.svc.cluster.local/json";
    // Kube-proxy may program the Service after the rollout has completed.
    let response = wait::until(
        Deadline::after(SOON),
        "a response of the Service",
        async || client.sh(&pod, &format!("curl -sS -m 5 {url}")).await,
    )
    .await?;

    ensure!(response.contains("\"pod\":\"web-"), "{response}");
    Ok(())
}

async fn a_job_completes(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("job").await?;
    namespace
        .apply(
            "
apiVersion: batch/v1
kind: Job
metadata:
  name: count
spec:
  completions: 2
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: count
          image: localhost/tools:latest
          imagePullPolicy: IfNotPresent
          command: [sh, -c, echo counted]
",
        )
        .await?;

    namespace.wait("job/count", "Complete").await?;

    let logs = namespace.kubectl(&["logs", "-l", "job-name=count"]).await?;
    ensure!(logs == "counted\ncounted\n", "{logs:?}");
    Ok(())
}

async fn a_pod_that_exceeds_its_memory_limit_is_killed(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("memory").await?;
    namespace
        .apply(
            "
apiVersion: v1
kind: Pod
metadata:
  name: greedy
spec:
  restartPolicy: Never
  containers:
    - name: greedy
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [sh, -c, 'x=a; while :; do x=$x$x; done']
      resources:
        limits: {memory: 64Mi}
",
        )
        .await?;

    namespace
        .wait("pod/greedy", "jsonpath={.status.phase}=Failed")
        .await?;

    let path = "{.status.containerStatuses[0].state.terminated.reason}";
    let reason = namespace.get("pod/greedy", path).await?;
    ensure!(reason == "OOMKilled", "{reason}");
    Ok(())
}
