//! A Service without selector, whose endpoint is a host outside of all clusters.

use super::reflected::{ip_of, mapped, until_endpoints_are};
use super::{is_gone, peered};
use crate::ROME;
use crate::fixture::{Peering, SOON, Suite, liqoctl, remapped, serial};
use crate::foreign::{HttpServer, Segment};
use crate::peering::unpeer;
use anyhow::{Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        an_offloaded_pod_reaches_a_host_outside_of_the_clusters
    );
}

/// A pod in each cluster, and the operator by which its node is selected.
const PODS: [(&str, &str); 2] = [("here", "NotIn"), ("there", "In")];

const POD: &str = include_str!("../manifests/services-pod.yaml");

/// The name of the Service and of its EndpointSlice.
const NAME: &str = "outside";

/// The port of the host.
const PORT: u16 = 8080;

/// The host is on the segment of the nodes, so that the provider's nodes would also reach it by its own address. The address of
/// the client that the host sees shows that a node of the consumer has forwarded the request.
async fn an_offloaded_pod_reaches_a_host_outside_of_the_clusters(
    peering: &'static Peering,
) -> Result<()> {
    let segment = Segment::claim()?;
    let host = segment.host()?;
    let _server = HttpServer::start(&host.netns, host.address, PORT)?;
    let clusters = peered(peering).await?;
    let [rome, milan] = clusters;
    let home = Namespace::create(rome, NAME).await?;
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    liqoctl(rome, &["offload", "namespace", NAME, strategy])?;
    for (name, operator) in PODS {
        let pod = POD.replace("NAME", name).replace("OPERATOR", operator);
        home.apply(&pod).await?;
        home.wait(&format!("pod/{name}"), "Ready").await?;
    }
    let remote = Namespace::existing(milan, &format!("{NAME}-{ROME}")).await?;
    let specs = rome.node_specs()?;
    let nodes: Vec<_> = specs.iter().map(|it| it.ip).collect();

    home.apply(&service().to_string()).await?;
    home.apply(&slice(host.address).to_string()).await?;
    let address = mapped(&home, host.address).await?;
    let address = remapped(milan, ROME, address).await?;
    until_endpoints_are(&remote, NAME, &[address]).await?;
    until_reached(&home, "here", &nodes).await?;
    until_reached(&remote, "there", &nodes).await?;

    home.kubectl(&["delete", "endpointslice", NAME]).await?;
    let ip = format!("ip/{}", ip_of(host.address));
    let reflected = format!("endpointslice/{NAME}");
    for (namespace, object) in [(&home, &ip), (&remote, &reflected)] {
        let wait = ["wait", object, "--for=delete", "--timeout=60s"];
        namespace.kubectl(&wait).await?;
    }
    for (namespace, pod) in [(&home, "here"), (&remote, "there")] {
        until_unreachable(namespace, pod).await?;
    }

    liqoctl(rome, &["unoffload", "namespace", NAME, "--skip-confirm"])?;
    is_gone(milan, remote.name())?;
    home.kubectl(&["delete", "pods", "--all", "--wait"]).await?;
    unpeer(clusters, &[]).await
}

fn service() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": PORT}]},
    })
}

fn slice(host: Ipv4Addr) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host.to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "http", "port": PORT, "protocol": "TCP"}],
    })
}

/// Waits until the host has replied to a pod, and one of these nodes has forwarded the request.
async fn until_reached(namespace: &Namespace, pod: &str, nodes: &[Ipv4Addr]) -> Result<()> {
    let what = format!("a reply of the host to {pod} through one of {nodes:?}");
    until(Deadline::after(SOON), &what, async || {
        let reply = request(namespace, pod).await?;
        let mut expected = nodes.iter().map(|node| format!("client={node}"));
        ensure!(
            expected.any(|it| it == reply.trim()),
            "the reply is {reply:?}"
        );
        Ok(())
    })
    .await
}

/// Waits until the Service has no endpoint.
async fn until_unreachable(namespace: &Namespace, pod: &str) -> Result<()> {
    let what = format!("no reply of the host to {pod}");
    until(Deadline::after(SOON), &what, async || {
        let reply = request(namespace, pod).await;
        ensure!(reply.is_err(), "the reply is {reply:?}");
        Ok(())
    })
    .await
}

/// Returns the reply of the Service to a pod.
async fn request(namespace: &Namespace, pod: &str) -> Result<String> {
    let command = format!("curl -sSf -m 3 http://{NAME}/");

    namespace.sh(pod, &command).await
}
