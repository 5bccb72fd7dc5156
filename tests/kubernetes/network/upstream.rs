//! Peers with upstream's gateway on real clusters.

use crate::fixture::{Peering, Suite, Web, calm};
use crate::foreign::{Foreign, POD};
use anyhow::{Result, ensure};
use kubernetes_lab::pod;
use serde_json::json;
use std::net::SocketAddrV4;
use tests::traffic::tcp;

pub(crate) fn add(suite: &mut Suite) {
    calm!(
        suite,
        an_upstream_client_is_connected_and_passes_traffic,
        an_upstream_server_is_connected_and_passes_traffic,
        two_upstream_peers_with_equal_addresses_are_told_apart,
    );
}

async fn an_upstream_client_is_connected_and_passes_traffic(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.rome, "upstream-client").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51840});

    let peer = Foreign::client(&peering.rome, "upstream-client", &endpoint).await?;

    peer.connected().await?;
    peer.talks(&web).await?;
    ensure!(
        peer.upstream.pings() > 0,
        "it is not asked whether it lives"
    );
    done(vec![peer], &web).await
}

async fn an_upstream_server_is_connected_and_passes_traffic(
    peering: &'static Peering,
) -> Result<()> {
    let web = Web::up(&peering.rome, "upstream-server").await?;

    let peer = Foreign::server(&peering.rome, "upstream-server").await?;

    peer.connected().await?;
    peer.talks(&web).await?;
    ensure!(
        peer.upstream.pings() > 0,
        "it is not asked whether it lives"
    );
    done(vec![peer], &web).await
}

/// The clusters' own pods have addresses of the same CIDR, too.
async fn two_upstream_peers_with_equal_addresses_are_told_apart(
    peering: &'static Peering,
) -> Result<()> {
    /// Where both serve.
    const PORT: u16 = 7400;

    let web = Web::up(&peering.rome, "equal-peers").await?;
    let endpoint = json!({"serviceType": "NodePort", "port": 51840});
    let peers = vec![
        Foreign::client(&peering.rome, "equal-client", &endpoint).await?,
        Foreign::server(&peering.rome, "equal-server").await?,
    ];
    for peer in &peers {
        peer.connected().await?;
        peer.talks(&web).await?;
    }

    let servers = peers
        .iter()
        .map(|peer| tcp::Server::start(peer.netns(), POD, PORT))
        .collect::<Result<Vec<_>>>()?;
    let from = pod::netns(&web.namespace, &web.pods[0].name).await?;
    for (index, peer) in peers.iter().enumerate() {
        let to = SocketAddrV4::new(peer.seen().await?, PORT);
        tcp::transfer(&from, to, 1 << 16)?;
        let clients: Vec<_> = servers.iter().map(|it| it.clients().len()).collect();
        let expected: Vec<_> = (0..servers.len())
            .map(|it| usize::from(it <= index))
            .collect();
        ensure!(clients == expected, "connections arrived at {clients:?}");
    }
    drop(servers);
    done(peers, &web).await
}

async fn done(peers: Vec<Foreign>, web: &Web) -> Result<()> {
    for peer in &peers {
        peer.tenant.delete().await?;
    }
    web.namespace.delete().await
}
