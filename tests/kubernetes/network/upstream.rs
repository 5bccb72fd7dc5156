//! Tests of peers with upstream Liqo's gateway, and of the requests of upstream's `liqoctl`.

mod sequence;

use crate::fixture::{Peering, Suite, Web, liqoctl, remapped, serial};
use crate::foreign::{Foreign, POD};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::pod;
use serde_json::json;
use std::net::SocketAddrV4;
use tests::traffic::tcp;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        an_upstream_client_is_connected_and_passes_traffic,
        an_upstream_server_is_connected_and_passes_traffic,
        two_upstream_peers_with_equal_addresses_are_distinguished,
    );
    serial!(suite, the_sequence_of_upstreams_liqoctl_completes,);
}

async fn an_upstream_client_is_connected_and_passes_traffic(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.rome, "upstream-client").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51840});

    let peer = Foreign::client(&peering.rome, "upstream-client", &endpoint).await?;

    peer.connected().await?;
    peer.exchanges_traffic(&web).await
}

async fn an_upstream_server_is_connected_and_passes_traffic(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.rome, "upstream-server").await?;

    let peer = Foreign::server(&peering.rome, "upstream-server").await?;

    peer.connected().await?;
    peer.exchanges_traffic(&web).await
}

/// Both peers and the cluster have the same pod CIDR.
async fn two_upstream_peers_with_equal_addresses_are_distinguished(
    peering: &'static Peering,
) -> Result<()> {
    /// The TCP port of the server in each peer's pod.
    const PORT: u16 = 7400;

    let web = Web::up(&peering.rome, "equal-peers").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51840});
    let peers = vec![
        Foreign::client(&peering.rome, "equal-client", &endpoint).await?,
        Foreign::server(&peering.rome, "equal-server").await?,
    ];
    for peer in &peers {
        peer.connected().await?;
        peer.exchanges_traffic(&web).await?;
    }

    let servers = peers
        .iter()
        .map(|peer| tcp::Server::start(peer.netns(), POD, PORT))
        .collect::<Result<Vec<_>>>()?;
    let from = pod::netns(&web.namespace, &web.pods[0].name).await?;
    for (index, peer) in peers.iter().enumerate() {
        let to = SocketAddrV4::new(peer.remapped().await?, PORT);
        tcp::transfer(&from, to, 1 << 16)?;
        let clients: Vec<_> = servers.iter().map(|it| it.clients().len()).collect();
        let expected: Vec<_> = (0..servers.len())
            .map(|it| usize::from(it <= index))
            .collect();
        ensure!(
            clients == expected,
            "the peers received {clients:?} connections"
        );
    }
    Ok(())
}

async fn the_sequence_of_upstreams_liqoctl_completes(peering: &'static Peering) -> Result<()> {
    const OPTION: &str = "--set=networking.gatewayTemplates.upstreamDeployments.enabled";

    cleanup::defer(
        "a peering without upstream's Deployments",
        async move || {
            peering.network("reset", &["--wait"])?;
            for cluster in peering.clusters() {
                install_with(cluster, &[&format!("{OPTION}=false")])?;
            }
            peering.connect()
        },
    );
    peering.network("reset", &["--wait"])?;
    for cluster in peering.clusters() {
        install_with(cluster, &[&format!("{OPTION}=true")])?;
    }

    sequence::play(&peering.rome, &peering.milan).await?;

    sequence::tenant_passes_upstreams_tests(&peering.rome, MILAN).await?;
    sequence::tenant_passes_upstreams_tests(&peering.milan, ROME).await?;
    let [rome, milan] = peering.web("upstreams-liqoctl").await?;
    for from in &rome.pods {
        for to in &milan.pods {
            let address = remapped(&peering.rome, MILAN, to.address).await?;
            let response = rome.get(from, &format!("{address}:8080")).await?;
            ensure!(response.contains(&to.name), "not {}: {response}", to.name);
        }
    }
    Ok(())
}

/// Upgrades Liqo by `liqoctl install` with additional flags.
fn install_with(cluster: &Cluster, flags: &[&str]) -> Result<()> {
    let chart = std::env::var("LIQO_LAB_CHART").context("LIQO_LAB_CHART is not set")?;
    let chart = format!("--local-chart-path={chart}");
    let words = ["install", &chart, "--pod-cidr=10.244.0.0/16"];
    let always = ["--set=tag=dev", "--set=pullPolicy=IfNotPresent"];
    liqoctl(cluster, &[&words, always.as_slice(), flags].concat()).map(drop)
}
