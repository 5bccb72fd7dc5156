//! Tests of IP objects whose `spec.ip` is the ClusterIP of a Service, with each mode of kube-proxy.

use crate::addresses::map;
use crate::converged::gateways;
use crate::failover::{kill, restarted};
use crate::fixture::{Peering, SOON, Suite, Web, WebPod, network, remapped, serial, until_pair_is};
use crate::three::{CONNECT, naples};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::pod;
use kubernetes_lab::spec::{KubeProxy, Spec};
use kubernetes_lab::wait::{Deadline, until};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use tests::traffic::tcp;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        services_are_reached_with_kube_proxy_in_nftables_mode,
        services_are_reached_with_kube_proxy_in_iptables_mode,
    );
}

async fn services_are_reached_with_kube_proxy_in_nftables_mode(
    peering: &'static Peering,
) -> Result<()> {
    let rules = peering.milan.node(1).exec("nft", &["list", "tables"])?;
    ensure!(rules.contains("table ip kube-proxy"), "{rules}");

    services_are_reached(&peering.rome, &peering.milan).await
}

async fn services_are_reached_with_kube_proxy_in_iptables_mode(
    peering: &'static Peering,
) -> Result<()> {
    let mut spec = Spec::new(crate::NAPLES);
    spec.kube_proxy = KubeProxy::Iptables;
    let naples = naples(peering, spec).await?;
    network([&peering.rome, &naples], "connect", &CONNECT)?;
    let rules = naples.node(1).exec("iptables-save", &["-t", "nat"])?;
    ensure!(rules.contains("KUBE-SERVICES"), "{rules}");

    let reached = services_are_reached(&peering.rome, &naples).await;
    network([&peering.rome, &naples], "reset", &["--wait"])?;
    until_pair_is(peering.clusters(), "Connected").await?;
    reached
}

/// The number of TCP streams to the Service [`STREAM`].
const STREAMS: usize = 8;

/// The port of the Service [`STREAM`] and of its endpoints.
const PORT: u16 = 7000;

/// A Service of the pods of [`Web`].
const STREAM: &str = "apiVersion: v1
kind: Service
metadata:
  name: stream
spec:
  selector:
    app: web
  ports:
    - port: 7000
";

/// Pods of `here` reach a Service of two endpoints and `kubernetes.default` of `there` while one
/// gateway after the other is killed. The streams to the Service keep their connections.
async fn services_are_reached(here: &Cluster, there: &Cluster) -> Result<()> {
    let clients = Web::up(here, "cluster-ips").await?;
    let servers = Web::up(there, "cluster-ips").await?;
    servers.namespace.apply(STREAM).await?;
    let default = Namespace::existing(there, "default").await?;
    let web = seen(here, &servers, "web", &servers.namespace).await?;
    let stream = seen(here, &servers, "stream", &servers.namespace).await?;
    let api = seen(here, &servers, "kubernetes", &default).await?;
    for client in &clients.pods {
        both_respond(&clients, client, web, &servers).await?;
        api_responds(&clients, client, api).await?;
    }
    let mut listeners = Vec::new();
    for server in &servers.pods {
        let netns = pod::netns(&servers.namespace, &server.name).await?;
        listeners.push(tcp::Server::start(&netns, server.address, PORT)?);
    }
    let mut streams = Vec::new();
    for client in clients.pods.iter().cycle().take(STREAMS) {
        let netns = pod::netns(&clients.namespace, &client.name).await?;
        let to = SocketAddrV4::new(stream, PORT);
        streams.push(tcp::Stream::start(&netns, to, 256 << 10)?);
    }

    let replicas = gateways(there).await?;
    ensure!(replicas.len() == 2, "{replicas:?}");
    for gateway in replicas {
        kill(&gateway)?;
        for stream in &streams {
            stream.wait_for_progress(SOON)?;
        }
        for client in &clients.pods {
            both_respond(&clients, client, web, &servers).await?;
            api_responds(&clients, client, api).await?;
        }
        restarted(there, &gateway).await?;
        until_pair_is([here, there], "Connected").await?;
    }

    for stream in streams {
        stream.finish()?;
    }
    let connections: usize = listeners.iter().map(|it| it.clients().len()).sum();
    ensure!(connections == STREAMS, "a stream has reconnected");
    Ok(())
}

/// Creates an IP object for the ClusterIP of a Service, and returns the address at which `here`
/// reaches the Service.
async fn seen(
    here: &Cluster,
    servers: &Web,
    service: &str,
    namespace: &Namespace,
) -> Result<Ipv4Addr> {
    let cluster_ip = namespace
        .get(&format!("service/{service}"), "{.spec.clusterIP}")
        .await?;
    let mapped = map(servers, service, &cluster_ip).await?;

    remapped(here, servers.namespace.cluster().name(), mapped).await
}

/// Waits until both endpoints of the Service `web` have responded to a pod.
async fn both_respond(
    clients: &Web,
    client: &WebPod,
    service: Ipv4Addr,
    servers: &Web,
) -> Result<()> {
    let mut silent: BTreeSet<_> = servers.pods.iter().map(|pod| &pod.name).collect();
    until(Deadline::after(SOON), "both endpoints", async || {
        let response = clients.get(client, &service.to_string()).await?;
        silent.retain(|name| !response.contains(name.as_str()));
        ensure!(silent.is_empty(), "{silent:?}");
        Ok(())
    })
    .await
}

/// Waits until the API server has responded to a pod. It permits anonymous requests for its version.
async fn api_responds(clients: &Web, client: &WebPod, service: Ipv4Addr) -> Result<()> {
    let script = format!("curl -ksS -m 5 https://{service}/version");
    until(Deadline::after(SOON), "the API server", async || {
        let response = clients.namespace.sh(&client.name, &script).await?;
        ensure!(response.contains("gitVersion"), "{response}");
        Ok(())
    })
    .await
    .context("kubernetes.default")
}
