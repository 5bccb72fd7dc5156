//! Tests of Services of all types. Clients are pods, nodes, the other cluster and the machine.

mod load_balancer;
mod source;

use crate::fixture::{Clusters, Suite, parallel};
use crate::workloads::web;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};
use source::Source;
use std::collections::BTreeSet;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_service_resolves_by_its_full_and_its_short_name,
        a_cluster_ip_reaches_all_pods_from_pods_and_nodes,
        a_pod_reaches_itself_through_its_service,
        a_node_port_reaches_all_pods_from_everywhere,
        a_local_node_port_keeps_the_source_address,
        a_host_port_is_served_only_on_the_node_of_its_pod,
        a_headless_service_resolves_to_its_pods,
        a_service_with_affinity_uses_one_pod,
        a_service_without_pods_refuses_connections,
        a_host_network_pod_reaches_services_by_name,
    );
    load_balancer::add(suite);
}

async fn a_service_resolves_by_its_full_and_its_short_name(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("service-names").await?;
    let pods = web(&namespace).await?;
    let from = Source::Pod(&namespace, &pods[0]);

    for name in [
        "web",
        "web.service-names",
        "web.service-names.svc",
        "web.service-names.svc.cluster.local",
    ] {
        from.reaches(name, &pods.clone().into()).await?;
    }

    let unknown = from.curl(&["http://other.service-names/"]).await;
    let unknown = format!("{:#}", unknown.err().context("the name resolves")?);
    ensure!(unknown.contains("Could not resolve host"), "{unknown}");
    Ok(())
}

async fn a_cluster_ip_reaches_all_pods_from_pods_and_nodes(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("cluster-ip").await?;
    let pods = web(&namespace).await?;
    let ip = namespace.get("service/web", "{.spec.clusterIP}").await?;

    let on_nodes = clusters.rome.nodes().into_iter().map(Source::Node);
    let in_pods = pods.iter().map(|pod| Source::Pod(&namespace, pod));
    for source in on_nodes.chain(in_pods) {
        source.reaches(&ip, &pods.clone().into()).await?;
    }

    Ok(())
}

async fn a_pod_reaches_itself_through_its_service(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("hairpin").await?;
    let pods = web(&namespace).await?;

    for pod in &pods {
        let source = Source::Pod(&namespace, pod);
        source.reaches("web", &pods.clone().into()).await?;
        // At least one of these requests reaches the client pod itself.
        let responses = source.requests("web").await?;
        ensure!(responses.iter().any(|it| it.pod == *pod), "{responses:?}");
    }

    Ok(())
}

async fn a_node_port_reaches_all_pods_from_everywhere(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("node-port").await?;
    let pods = web(&namespace).await?;
    let port = node_port(&namespace).await?;
    let abroad = Namespace::create(&clusters.milan, "node-port").await?;
    let clients = web(&abroad).await?;

    for node in clusters.rome.node_specs()? {
        let to = format!("{}:{port}", node.ip);
        let on_nodes = clusters.milan.nodes().into_iter().map(Source::Node);
        let others = [Source::Machine, Source::Pod(&abroad, &clients[0])];
        for source in on_nodes.chain(others) {
            source.reaches(&to, &pods.clone().into()).await?;
        }
    }

    Ok(())
}

/// The client's node masquerades traffic to other clusters, so the source is the address of the
/// client's node. A node port with the traffic policy `Local` must not change this address.
async fn a_local_node_port_keeps_the_source_address(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("local-node-port").await?;
    web(&namespace).await?;
    let local = r#"{"spec": {"externalTrafficPolicy": "Local"}}"#;
    patch(&namespace, "web", local).await?;
    let port = node_port(&namespace).await?;
    let abroad = Namespace::create(&clusters.milan, "local-node-port").await?;
    let [client, _] = web(&abroad).await?;
    let source = Source::Pod(&abroad, &client);
    let client = abroad
        .get(&format!("pod/{client}"), "{.status.hostIP}")
        .await?;

    for node in clusters.rome.node_specs()? {
        let to = format!("{}:{port}", node.ip);
        until(
            Deadline::after(SOON),
            "the policy to take effect",
            async || {
                let responses = source.requests(&to).await?;
                let is_true = |it: &source::Response| it.node == node.name && it.client == client;
                ensure!(
                    responses.iter().all(is_true),
                    "{responses:?}, from {client}"
                );
                Ok(())
            },
        )
        .await?;
    }

    Ok(())
}

async fn a_host_port_is_served_only_on_the_node_of_its_pod(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("host-port").await?;
    namespace.apply(HOST_PORT).await?;
    namespace.wait("pod/door", "Ready").await?;
    let place = namespace.get("pod/door", "{.spec.nodeName}").await?;

    for node in clusters.rome.node_specs()? {
        let to = format!("{}:18080", node.ip);
        for source in [Source::Machine, Source::Node(clusters.milan.node(1))] {
            if node.name == place {
                source.reaches(&to, &["door".to_owned()].into()).await?;
            } else {
                source.is_refused(&to).await?;
            }
        }
    }

    Ok(())
}

const HOST_PORT: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: door
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: door
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [whoami]
      env:
        - {name: POD_NAME, value: door}
      ports:
        - {containerPort: 8080, hostPort: 18080}
      readinessProbe:
        httpGet: {path: /healthz, port: 8080}
        periodSeconds: 1
";

async fn a_headless_service_resolves_to_its_pods(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("headless").await?;
    let [pod, _] = web(&namespace).await?;
    let expose = "expose deployment web --name=each --cluster-ip=None --port=8080";
    let expose: Vec<_> = expose.split(' ').collect();
    namespace.kubectl(&expose).await?;
    let path = "{range .items[*]}{.status.podIP} {end}";
    let ips = namespace.get("pods", path).await?;
    let expected: BTreeSet<_> = ips.split_whitespace().collect();

    until(
        Deadline::after(SOON),
        "the name to resolve to both addresses",
        async || {
            let name = "each.headless.svc.cluster.local";
            let hosts = namespace.sh(&pod, &format!("nslookup {name}")).await?;
            // `nslookup` prints a tab after `Address:` in the line of the name server, and a space
            // in all other lines.
            let addresses = hosts.lines().filter_map(|it| it.strip_prefix("Address: "));
            let found: BTreeSet<_> = addresses.collect();
            ensure!(found == expected, "{hosts}, not {expected:?}");
            Ok(())
        },
    )
    .await?;

    let label = "--selector=kubernetes.io/service-name=each";
    let path = "jsonpath={range .items[*].endpoints[*]}{.addresses[0]} {end}";
    let slices = ["get", "endpointslices", label, "-o", path];
    let slices = namespace.kubectl(&slices).await?;
    let endpoints: BTreeSet<_> = slices.split_whitespace().collect();
    ensure!(endpoints == expected, "{slices}, not {expected:?}");
    Ok(())
}

async fn a_service_with_affinity_uses_one_pod(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("affinity").await?;
    let pods = web(&namespace).await?;
    let source = Source::Pod(&namespace, &pods[0]);
    source.reaches("web", &pods.clone().into()).await?;

    let affinity = r#"{"spec": {"sessionAffinity": "ClientIP"}}"#;
    patch(&namespace, "web", affinity).await?;

    until(
        Deadline::after(SOON),
        "the affinity to take effect",
        async || {
            let responses = source.requests("web").await?;
            ensure!(responses.len() == 1, "{responses:?}");
            Ok(())
        },
    )
    .await?;
    Ok(())
}

async fn a_service_without_pods_refuses_connections(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("no-endpoints").await?;
    let pods = web(&namespace).await?;
    let ip = namespace.get("service/web", "{.spec.clusterIP}").await?;
    let source = Source::Node(clusters.rome.node(1));
    source.reaches(&ip, &pods.into()).await?;
    let scale = async |replicas: &str| {
        let scale = ["scale", "deployment/web", replicas];
        namespace.kubectl(&scale).await
    };

    scale("--replicas=0").await?;
    source.is_refused(&ip).await?;

    scale("--replicas=1").await?;
    namespace.rolled_out("deployment/web").await?;
    let pod = namespace.pods("app=web").await?;
    source.reaches(&ip, &pod.into_iter().collect()).await?;
    Ok(())
}

async fn a_host_network_pod_reaches_services_by_name(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("host-network").await?;
    let pods = web(&namespace).await?;
    namespace.apply(ON_HOST).await?;
    namespace.wait("pod/host", "Ready").await?;
    let node = namespace.get("pod/host", "{.status.hostIP}").await?;
    let own = namespace.get("pod/host", "{.status.podIP}").await?;
    ensure!(node == own, "{node} is not {own}");

    let source = Source::Pod(&namespace, "host");
    source.reaches("web", &pods.clone().into()).await?;
    for pod in pods {
        let ip = namespace
            .get(&format!("pod/{pod}"), "{.status.podIP}")
            .await?;
        source.reaches(&format!("{ip}:8080"), &[pod].into()).await?;
    }

    Ok(())
}

const ON_HOST: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: host
spec:
  terminationGracePeriodSeconds: 0
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  containers:
    - name: host
      image: localhost/tools:latest
      imagePullPolicy: IfNotPresent
      command: [sleep, infinity]
";

async fn node_port(namespace: &Namespace) -> Result<String> {
    let path = "{.spec.ports[0].nodePort}";
    namespace.get("service/web", path).await
}

/// Changes fields of a Service by a merge patch.
async fn patch(namespace: &Namespace, service: &str, fields: &str) -> Result<()> {
    let words = ["patch", "service", service, "--type=merge", "-p", fields];
    namespace.kubectl(&words).await.map(drop)
}
