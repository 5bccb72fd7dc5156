//! Tests that the settings of each GatewayServer take effect, although the same gateways serve all
//! peers.

use crate::fixture::{LIQO, Peering, SOON, Suite, Web, serial};
use crate::foreign::{Foreign, Tenant};
use anyhow::{Context as _, Result, ensure};
use control_api::GatewayServer;
use k8s_openapi::api::core::v1::{Service, ServicePort};
use kube::Api;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::pod;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};
use tests::lab::link::ip;
use tests::lab::netns::Netns;
use tests::traffic::ping::{Ping, Report};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_fixed_node_port_is_served_at_every_node,
        a_load_balancer_is_served_at_its_address,
        a_cluster_ip_is_served_within_the_cluster,
        equal_specs_share_a_service_and_different_specs_do_not,
        a_changed_endpoint_takes_effect_without_disturbing_another_peer,
        each_peer_has_the_mtu_of_its_own_gateway_server,
    );
}

/// A node port near the end of the default range, where automatic allocations are rare.
const NODE_PORT: u16 = 32_740;

async fn a_fixed_node_port_is_served_at_every_node(peering: &'static Peering) -> Result<()> {
    let web = Web::up(&peering.milan, "fixed-port").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51999, "nodePort": NODE_PORT});
    let peer = Foreign::client(&peering.milan, "fixed-port", &endpoint).await?;

    let (addresses, port) = peer.tenant.endpoint().await?;

    ensure!(port == NODE_PORT, "{port}");
    let nodes = nodes(&peering.milan)?;
    let published: BTreeSet<_> = addresses.iter().cloned().collect();
    ensure!(published == nodes, "{addresses:?} are not {nodes:?}");
    let service = spec(&peer.tenant).await?;
    ensure!(service.type_.as_deref() == Some("NodePort"), "{service:?}");
    ensure!(first_port(&service)?.port == 51999, "{service:?}");
    for address in addresses {
        peer.set_endpoint(SocketAddrV4::new(address.parse()?, port))
            .await?;
        peer.connected().await?;
        peer.exchanges_traffic(&web).await?;
    }
    Ok(())
}

async fn a_load_balancer_is_served_at_its_address(peering: &'static Peering) -> Result<()> {
    let web = Web::up(&peering.milan, "balanced").await?;
    // The laboratory's load balancer ignores the requested address, as many load balancers do.
    let requested = "172.18.2.199";
    let spec_of_server = json!({
        "endpoint": {"serviceType": "LoadBalancer", "port": 51841, "loadBalancerIP": requested},
        "serviceAnnotations": {"example.org/pool": "edge"},
        "serviceLabels": {"example.org/owner": "ops"},
    });
    let peer = Foreign::client(&peering.milan, "balanced", &spec_of_server["endpoint"]).await?;
    peer.tenant.serve(&spec_of_server).await?;

    let service = until(Deadline::after(SOON), "an annotated Service", async || {
        let service = service(&peer.tenant).await?;
        let annotations = service.metadata.annotations.clone().unwrap_or_default();
        let labels = service.metadata.labels.clone().unwrap_or_default();
        let has = |map: &std::collections::BTreeMap<String, String>, key: &str, value: &str| {
            map.get(key).is_some_and(|it| it == value)
        };
        ensure!(
            has(&annotations, "example.org/pool", "edge"),
            "{annotations:?}"
        );
        ensure!(has(&labels, "example.org/owner", "ops"), "{labels:?}");
        Ok(service)
    })
    .await?;

    let spec = service.spec.clone().context("a Service has a spec")?;
    ensure!(spec.type_.as_deref() == Some("LoadBalancer"), "{spec:?}");
    ensure!(
        spec.load_balancer_ip.as_deref() == Some(requested),
        "{spec:?}"
    );
    let ingress = service.status.and_then(|it| it.load_balancer?.ingress);
    let ingress = ingress.unwrap_or_default();
    let assigned: Vec<_> = ingress.iter().filter_map(|it| it.ip.clone()).collect();
    let (addresses, port) = peer.tenant.endpoint().await?;
    ensure!(addresses == assigned, "{addresses:?} are not {assigned:?}");
    ensure!(port == 51841, "{port}");
    peer.set_endpoint(SocketAddrV4::new(addresses[0].parse()?, port))
        .await?;
    peer.connected().await?;
    peer.exchanges_traffic(&web).await
}

async fn a_cluster_ip_is_served_within_the_cluster(peering: &'static Peering) -> Result<()> {
    let web = Web::up(&peering.milan, "cluster-ip").await?;
    let endpoint = json!({"serviceType": "ClusterIP", "port": 51842});
    let peer = Foreign::client(&peering.milan, "cluster-ip", &endpoint).await?;

    let (addresses, port) = peer.tenant.endpoint().await?;

    let service = spec(&peer.tenant).await?;
    ensure!(service.type_.as_deref() == Some("ClusterIP"), "{service:?}");
    ensure!(
        Some(&addresses) == service.cluster_ips.as_ref(),
        "{addresses:?}"
    );
    ensure!(port == 51842, "{port}");
    // A ClusterIP is reachable only from nodes and pods, so the client gets a route to the
    // ClusterIP through a node. A VPN into the cluster would have the same effect.
    let node = peering.milan.node_specs()?[1].ip;
    let route = format!("route replace {}/32 via {node}", addresses[0]);
    ip(peer.netns(), &[route])?;
    peer.connected().await?;
    peer.exchanges_traffic(&web).await
}

async fn equal_specs_share_a_service_and_different_specs_do_not(
    peering: &'static Peering,
) -> Result<()> {
    let endpoint = json!({"serviceType": "NodePort", "port": 51900});
    let [first, second, other] = [
        server(&peering.milan, "shares-1", &endpoint).await?,
        server(&peering.milan, "shares-2", &endpoint).await?,
        server(
            &peering.milan,
            "shares-not",
            &json!({"serviceType": "NodePort", "port": 51901}),
        )
        .await?,
    ];

    let of_first = service_and_port(&first).await?;
    let of_second = service_and_port(&second).await?;
    let of_other = service_and_port(&other).await?;

    ensure!(of_first == of_second, "{of_first:?}, {of_second:?}");
    ensure!(
        of_first.0 != of_other.0,
        "the Services of all are {}",
        of_first.0
    );
    ensure!(
        of_first.1 != of_other.1,
        "the ports of all are {}",
        of_first.1
    );
    first.delete().await?;
    gone(&peering.milan, &first).await?;
    ensure!(
        service_name(&second).await? == of_second.0,
        "the shared Service is gone"
    );
    for (tenant, name) in [(second, of_second.0), (other, of_other.0)] {
        tenant.delete().await?;
        let api: Api<Service> = Api::namespaced(peering.milan.client().await?, LIQO);
        let what = format!("Service {name} to be deleted with its last GatewayServer");
        until(Deadline::after(SOON), &what, async || {
            ensure!(api.get_opt(&name).await?.is_none(), "it exists");
            Ok(())
        })
        .await?;
    }

    Ok(())
}

/// The minimum age of an undisturbed session, in seconds, at which WireGuard renews it. This is
/// `REKEY_AFTER_TIME` of 120 s, minus a margin for adjustments of the clock.
const RENEWED_AFTER: u64 = 115;

async fn a_changed_endpoint_takes_effect_without_disturbing_another_peer(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.milan, "changed").await?;
    let before = json!({"serviceType": "NodePort", "port": 51910});
    let peer = Foreign::client(&peering.milan, "changed", &before).await?;
    let neighbour = Foreign::client(&peering.milan, "neighbour", &before).await?;
    for it in [&peer, &neighbour] {
        it.connected().await?;
        it.exchanges_traffic(&web).await?;
    }
    let shared = service_name(&neighbour.tenant).await?;
    let handshake = neighbour.upstream.wireguard.latest_handshake()?;
    let endpoint = neighbour.tenant.endpoint().await?;

    for after in [
        json!({"serviceType": "LoadBalancer", "port": 51911}),
        json!({"serviceType": "LoadBalancer", "port": 51912}),
        json!({"serviceType": "NodePort", "port": 51911, "nodePort": NODE_PORT + 1}),
        json!({"serviceType": "NodePort", "port": 51911, "nodePort": NODE_PORT + 2}),
    ] {
        let old = peer.tenant.endpoint().await?;
        peer.tenant
            .serve(&json!({"endpoint": after, "mtu": 1340}))
            .await?;
        let what = format!("another endpoint for {after}");
        let (addresses, port) = until(Deadline::after(SOON), &what, async || {
            let now = peer.tenant.endpoint().await?;
            ensure!(now != old, "{now:?}");
            let expected = after["nodePort"].as_u64().or(after["port"].as_u64());
            ensure!(expected == Some(u64::from(now.1)), "{now:?}");
            Ok(now)
        })
        .await?;
        peer.set_endpoint(SocketAddrV4::new(addresses[0].parse()?, port))
            .await?;
        peer.exchanges_traffic(&web).await?;
    }

    ensure!(
        service_name(&neighbour.tenant).await? == shared,
        "the neighbour's Service changed"
    );
    ensure!(
        neighbour.tenant.endpoint().await? == endpoint,
        "the neighbour's endpoint changed"
    );
    neighbour.exchanges_traffic(&web).await?;
    let now = neighbour.upstream.wireguard.latest_handshake()?;
    ensure!(
        now == handshake || now >= handshake + RENEWED_AFTER,
        "the neighbour's session was replaced: handshakes at {handshake} and {now}"
    );
    Ok(())
}

async fn each_peer_has_the_mtu_of_its_own_gateway_server(peering: &'static Peering) -> Result<()> {
    let web = Web::up(&peering.milan, "mtu").await?;
    let endpoint = json!({"port": 51840, "serviceType": "NodePort"});
    let small = Foreign::client(&peering.milan, "mtu-small", &endpoint).await?;
    let large = Foreign::client(&peering.milan, "mtu-large", &endpoint).await?;

    let from = pod::netns(&web.namespace, &web.pods[0].name).await?;
    small.connected().await?;
    large.connected().await?;
    let unchanged = large.remapped().await?;
    until(Deadline::after(SOON), "the other peer's MTU", async || {
        ensure!(passes(&from, unchanged, 1340)?, "1340 bytes do not pass");
        Ok(())
    })
    .await?;

    for (mtu, fits) in [(1200, 1200), (1280, 1280)] {
        let spec = json!({"endpoint": endpoint, "mtu": mtu});
        small.tenant.serve(&spec).await?;
        let remapped = small.remapped().await?;
        let what = format!("packets of {mtu} bytes, and no larger ones");
        until(Deadline::after(SOON), &what, async || {
            clear_path_mtus(&from)?;
            ensure!(passes(&from, remapped, fits)?, "{fits} bytes do not pass");
            clear_path_mtus(&from)?;
            ensure!(
                !passes(&from, remapped, fits + 1)?,
                "{} bytes pass",
                fits + 1
            );
            Ok(())
        })
        .await?;
        small.exchanges_traffic(&web).await?;
        clear_path_mtus(&from)?;
        let report = ping(&from, unchanged, 1340)?;
        ensure!(report.is_complete(), "the other peer: {}", report.text);
    }

    Ok(())
}

/// Returns whether packets of this size pass without fragmentation.
fn passes(from: &Netns, to: Ipv4Addr, bytes: u32) -> Result<bool> {
    Ok(ping(from, to, bytes)?.is_complete())
}

/// Pings with packets of this size and the flag Don't Fragment.
fn ping(from: &Netns, to: Ipv4Addr, bytes: u32) -> Result<Report> {
    /// The size of the IP and ICMP headers, in bytes.
    const HEADERS: u32 = 28;

    let ping = Ping {
        count: 2,
        size: bytes - HEADERS,
        dont_fragment: true,
        ..Ping::default()
    };
    ping.run(from, to)
}

/// Clears the path MTUs in a pod's route cache.
fn clear_path_mtus(netns: &Netns) -> Result<()> {
    ip(netns, &["route flush cache"])
}

async fn server(cluster: &Cluster, id: &str, endpoint: &Value) -> Result<Tenant> {
    let tenant = Tenant::create(cluster, id).await?;
    tenant.serve(&json!({"endpoint": endpoint})).await?;

    Ok(tenant)
}

fn nodes(cluster: &Cluster) -> Result<BTreeSet<String>> {
    let nodes = cluster.node_specs()?;
    Ok(nodes.iter().map(|node| node.ip.to_string()).collect())
}

async fn service_and_port(tenant: &Tenant) -> Result<(String, u16)> {
    let (_, port) = tenant.endpoint().await?;
    Ok((service_name(tenant).await?, port))
}

async fn service_name(tenant: &Tenant) -> Result<String> {
    let api: Api<GatewayServer> = tenant.api();
    let status = api.get(tenant.id()).await?.status.unwrap_or_default();
    let reference = status.server_ref.context("no status.serverRef")?;
    ensure!(
        reference.kind.as_deref() == Some("Service"),
        "{reference:?}"
    );

    reference.name.context("a reference has a name")
}

async fn service(tenant: &Tenant) -> Result<Service> {
    let name = service_name(tenant).await?;
    let api: Api<Service> = Api::namespaced(tenant.cluster().client().await?, LIQO);

    Ok(api.get(&name).await?)
}

async fn spec(tenant: &Tenant) -> Result<k8s_openapi::api::core::v1::ServiceSpec> {
    service(tenant).await?.spec.context("a Service has a spec")
}

fn first_port(spec: &k8s_openapi::api::core::v1::ServiceSpec) -> Result<&ServicePort> {
    let mut ports = spec.ports.iter().flatten();
    ports.next().context("a Service has a port")
}

/// Waits until the GatewayServer of a tenant is deleted.
async fn gone(cluster: &Cluster, tenant: &Tenant) -> Result<()> {
    let api: Api<GatewayServer> =
        Api::namespaced(cluster.client().await?, tenant.namespace().name());
    until(
        Deadline::after(SOON),
        "the GatewayServer to be gone",
        async || {
            ensure!(api.get_opt(tenant.id()).await?.is_none(), "it exists");
            Ok(())
        },
    )
    .await
}
