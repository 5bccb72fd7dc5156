//! Tests of Services of type LoadBalancer.

use super::patch;
use super::source::Source;
use crate::fixture::{Clusters, Suite, parallel};
use crate::workloads::web;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::underlay::Underlay;
use kubernetes_lab::wait::{Deadline, SOON, until};
use std::net::Ipv4Addr;

pub(super) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_load_balancer_is_reachable_from_outside,
        a_load_balancer_keeps_its_address_when_it_changes,
        each_load_balancer_has_its_own_address,
        a_deleted_load_balancer_releases_its_address,
        a_load_balancer_that_becomes_a_cluster_ip_releases_its_address,
    );
}

async fn a_load_balancer_is_reachable_from_outside(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("load-balancer").await?;
    let pods = web(&namespace).await?;

    expose(&namespace, "shop").await?;
    let address = address(&namespace, "shop").await?;

    let underlay = Underlay::existing()?
        .context("the underlay is missing")?
        .net();
    let [a, b, ..] = underlay.addr().octets();
    let [.., host] = address.octets();
    let own = Ipv4Addr::new(a, b, clusters.rome.number, host);
    ensure!(address == own && (100..=249).contains(&host), "{address}");
    let to = address.to_string();
    let inside = clusters.rome.nodes().into_iter().map(Source::Node);
    let outside = [Source::Node(clusters.milan.node(1)), Source::Machine];
    for source in inside.chain(outside) {
        source.reaches(&to, &pods.clone().into()).await?;
    }

    Ok(())
}

async fn a_load_balancer_keeps_its_address_when_it_changes(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("changed-balancer").await?;
    let pods = web(&namespace).await?;
    expose(&namespace, "shop").await?;
    let before = address(&namespace, "shop").await?;

    let ports = r#"{"spec": {"ports": [{"port": 8081, "targetPort": 8080}]}}"#;
    patch(&namespace, "shop", ports).await?;

    let to = format!("{before}:8081");
    Source::Machine.reaches(&to, &pods.into()).await?;
    let after = address(&namespace, "shop").await?;
    ensure!(after == before, "{before} became {after}");
    Ok(())
}

async fn each_load_balancer_has_its_own_address(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("two-balancers").await?;
    let pods = web(&namespace).await?;

    expose(&namespace, "shop").await?;
    expose(&namespace, "mail").await?;

    let shop = address(&namespace, "shop").await?;
    let mail = address(&namespace, "mail").await?;
    ensure!(shop != mail, "both have {shop}");
    for to in [shop, mail] {
        let to = to.to_string();
        Source::Machine.reaches(&to, &pods.clone().into()).await?;
    }
    Ok(())
}

async fn a_deleted_load_balancer_releases_its_address(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("deleted-balancer").await?;
    let pods = web(&namespace).await?;
    expose(&namespace, "shop").await?;
    let address = address(&namespace, "shop").await?;
    Source::Machine
        .reaches(&address.to_string(), &pods.into())
        .await?;
    ensure!(is_on_node(clusters, address)?, "the node has no {address}");

    namespace.kubectl(&["delete", "service", "shop"]).await?;

    is_released(clusters, address, &namespace).await?;
    Ok(())
}

async fn a_load_balancer_that_becomes_a_cluster_ip_releases_its_address(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("former-balancer").await?;
    let pods = web(&namespace).await?;
    expose(&namespace, "shop").await?;
    let address = address(&namespace, "shop").await?;
    let to = address.to_string();
    Source::Machine.reaches(&to, &pods.clone().into()).await?;

    patch(&namespace, "shop", r#"{"spec": {"type": "ClusterIP"}}"#).await?;

    is_released(clusters, address, &namespace).await?;
    until(
        Deadline::after(SOON),
        "the status to be empty",
        async || {
            let path = "{.status.loadBalancer}";
            let status = namespace.get("service/shop", path).await?;
            ensure!(status == "{}", "{status}");
            Ok(())
        },
    )
    .await?;
    let ip = namespace.get("service/shop", "{.spec.clusterIP}").await?;
    let node = Source::Node(clusters.rome.node(1));
    node.reaches(&ip, &pods.into()).await?;
    Ok(())
}

async fn expose(namespace: &Namespace, name: &str) -> Result<()> {
    let words = "expose deployment web --type=LoadBalancer --port=80 --target-port=8080";
    let name = format!("--name={name}");
    let words: Vec<_> = words.split(' ').chain([name.as_str()]).collect();
    namespace.kubectl(&words).await.map(drop)
}

/// Waits until a Service has an address, and returns the address.
async fn address(namespace: &Namespace, service: &str) -> Result<Ipv4Addr> {
    until(Deadline::after(SOON), "an address", async || {
        let path = "{.status.loadBalancer.ingress[*].ip}";
        let address = namespace.get(&format!("service/{service}"), path).await?;
        address.parse().with_context(|| format!("{address:?}"))
    })
    .await
}

/// Waits until no Service of the namespace has `address`. The node may keep the address for a
/// Service of another test.
async fn is_released(clusters: &Clusters, address: Ipv4Addr, namespace: &Namespace) -> Result<()> {
    until(Deadline::after(SOON), "the address to be released", async || {
        let holders = [
            "get",
            "services",
            "--all-namespaces",
            "-o",
            "jsonpath={range .items[*]}{.metadata.namespace}={.status.loadBalancer.ingress[*].ip} {end}",
        ];
        let holders = namespace.kubectl(&holders).await?;
        let holder = holders.split(' ').find_map(|it| it.strip_suffix(&format!("={address}")));
        match holder {
            Some(other) => ensure!(other != namespace.name(), "the Service has the address"),
            None => ensure!(!is_on_node(clusters, address)?, "the node has the address"),
        }
        Ok(())
    })
    .await
}

/// Returns whether the node of the control plane has `address`. This node has the addresses of all
/// load balancers.
fn is_on_node(clusters: &Clusters, address: Ipv4Addr) -> Result<bool> {
    let show = ["-4", "-oneline", "address", "show", "dev", "eth0"];
    let shown = clusters.rome.node(0).exec("ip", &show)?;
    Ok(shown.contains(&format!(" {address}/32 ")))
}
