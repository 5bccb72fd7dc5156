//! Tests of three clusters with the same CIDRs. Each cluster is connected to both other clusters.

use crate::NAPLES;
use crate::converged::until_converged;
use crate::deletion::reaches;
use crate::fixture::{Peering, Suite, Web, network, prepare, serial, until_pair_is};
use crate::rounds::{Ends, Rounds, lost_nothing};
use anyhow::{Context as _, Result};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::{self, Cluster};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        three_clusters_with_the_same_networks_reach_each_other
    );
}

pub(crate) const CONNECT: [&str; 2] = ["--gw-server-service-type=NodePort", "--wait"];

async fn three_clusters_with_the_same_networks_reach_each_other(
    peering: &'static Peering,
) -> Result<()> {
    let naples = naples(peering, Spec::new(NAPLES)).await?;
    let [rome, milan] = peering.clusters();

    let mut rounds = Rounds::start(peering, "three-clusters", Ends::Everywhere).await?;
    until_converged(peering).await?;
    let connected = rounds.measure("a peer connected", async |_| {
        network([rome, &naples], "connect", &CONNECT)?;
        network([&naples, milan], "connect", &CONNECT).map(drop)
    });
    let connected = connected.await?;
    let all = [rome, milan, &naples];
    let mut webs = Vec::new();
    for cluster in all {
        webs.push(Web::up(cluster, "three").await?);
    }
    for (here, home) in webs.iter().zip(all) {
        for (there, abroad) in webs.iter().zip(all) {
            if home.name() != abroad.name() {
                reaches(home, here, abroad.name(), there).await?;
            }
        }
    }
    let [of_rome, of_milan, of_naples] = &webs[..] else {
        anyhow::bail!("{} clusters instead of three", webs.len());
    };

    let disconnected = rounds.measure("a peer reset", async |_| {
        network([rome, &naples], "reset", &["--wait"]).map(drop)
    });
    let disconnected = disconnected.await?;
    rounds.finish().await?;
    until_pair_is([rome, milan], "Connected").await?;
    until_pair_is([&naples, milan], "Connected").await?;
    reaches(rome, of_rome, milan.name(), of_milan).await?;
    reaches(milan, of_milan, NAPLES, of_naples).await?;
    reaches(&naples, of_naples, milan.name(), of_milan).await?;
    network([&naples, milan], "reset", &["--wait"])?;
    until_pair_is([rome, milan], "Connected").await?;

    lost_nothing(connected)?;
    lost_nothing(disconnected)
}

/// Creates the cluster naples with Liqo. Its name in `spec` must be [`NAPLES`]. Removes the cluster
/// and its tenant namespaces after the test.
pub(crate) async fn naples(peering: &Peering, spec: Spec) -> Result<Cluster> {
    for cluster in peering.clusters() {
        let tenant = format!("liqo-tenant-{NAPLES}");
        let tenant = Namespace::existing(cluster, &tenant).await?;
        cleanup::defer(format!("{tenant:?}"), async move || tenant.delete().await);
    }
    cleanup::defer(NAPLES, async || {
        match cluster::names()?.iter().any(|name| name == NAPLES) {
            true => cluster::remove(NAPLES),
            false => Ok(()),
        }
    });
    let clusters = suite::up(vec![spec])?;
    let naples = clusters.into_iter().next().context("no cluster")?;
    prepare(&naples)?;

    Ok(naples)
}
