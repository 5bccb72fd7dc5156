//! Tests of peerings of three clusters, each of which is consumer and provider.

use super::{between, connected_again, nothing_of_pair, peer, until_healthy};
use crate::NAPLES;
use crate::deletion::reaches;
use crate::fixture::{Peering, Suite, Web, serial, until_pair_is};
use crate::three::naples;
use anyhow::{Result, ensure};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::spec::Spec;
use std::time::Instant;

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, three_clusters_peer_in_a_ring_and_in_both_directions);
}

/// All directions: a ring, its reverse, and therefore a consumer of two providers and a provider of two consumers.
async fn three_clusters_peer_in_a_ring_and_in_both_directions(
    peering: &'static Peering,
) -> Result<()> {
    connected_again(peering);
    let naples = naples(peering, Spec::new(NAPLES)).await?;
    let [rome, milan] = peering.clusters();
    let ring = [[rome, milan], [milan, &naples], [&naples, rome]];
    for pair in ring {
        peer(pair, &[])?;
    }
    for [consumer, provider] in ring {
        until_healthy(consumer, provider.name(), "Provider").await?;
        until_healthy(provider, consumer.name(), "Consumer").await?;
    }

    for [provider, consumer] in ring {
        peer([consumer, provider], &[])?;
    }
    for [consumer, provider] in ring {
        until_healthy(consumer, provider.name(), "ConsumerAndProvider").await?;
        until_healthy(provider, consumer.name(), "ConsumerAndProvider").await?;
    }
    let mut webs = Vec::new();
    for cluster in [rome, milan, &naples] {
        webs.push(Web::up(cluster, "ring").await?);
    }
    all_reach_each_other([rome, milan, &naples], &webs).await?;

    // One direction ends, and the other one and the network remain.
    for pair in ring {
        ensure!(between(pair, &["unpeer", "--delete-namespaces"]).is_err());
        between(pair, &["unpeer"])?;
    }
    for [provider, consumer] in ring {
        until_pair_is([consumer, provider], "Connected").await?;
        until_healthy(consumer, provider.name(), "Provider").await?;
        until_healthy(provider, consumer.name(), "Consumer").await?;
    }
    all_reach_each_other([rome, milan, &naples], &webs).await?;

    for [provider, consumer] in ring {
        between([consumer, provider], &["unpeer"])?;
        let ended = Instant::now();
        nothing_of_pair(consumer, provider.name(), ended).await?;
        nothing_of_pair(provider, consumer.name(), ended).await?;
    }
    Ok(())
}

async fn all_reach_each_other(clusters: [&Cluster; 3], webs: &[Web]) -> Result<()> {
    for (here, home) in clusters.into_iter().zip(webs) {
        for (there, abroad) in clusters.into_iter().zip(webs) {
            if here.name() != there.name() {
                reaches(here, home, there.name(), abroad).await?;
            }
        }
    }
    Ok(())
}
