//! Three clusters with the same networks, each connected to both others.

use crate::NAPLES;
use crate::deletion::reaches;
use crate::fixture::{Peering, Suite, Web, network, prepare, rough, until_pair_is};
use crate::rounds::{Ends, Rounds, lost_nothing};
use crate::whole::until_whole;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::cluster::{self, Cluster};
use kubernetes_lab::spec::Spec;
use kubernetes_lab::suite;

pub(crate) fn add(suite: &mut Suite) {
    rough!(
        suite,
        three_clusters_with_the_same_networks_reach_each_other
    );
}

const CONNECT: [&str; 2] = ["--gw-server-service-type=NodePort", "--wait"];

async fn three_clusters_with_the_same_networks_reach_each_other(
    peering: &'static Peering,
) -> Result<()> {
    let outcome = beside(peering).await;
    // Also after a failure: the tests after this one know two clusters.
    let mut left = Ok(());
    for cluster in peering.clusters() {
        left = left.and(forget(cluster));
    }
    if cluster::names()?.iter().any(|name| name == NAPLES) {
        cluster::remove(NAPLES)?;
    }

    outcome.and(left)
}

async fn beside(peering: &'static Peering) -> Result<()> {
    let clusters = suite::up(vec![Spec::new(NAPLES)])?;
    let naples = clusters.into_iter().next().context("no cluster")?;
    prepare(&naples)?;
    let [rome, milan] = peering.clusters();

    let mut rounds = Rounds::start(peering, "three-clusters", Ends::Everywhere).await?;
    until_whole(peering).await?;
    let connected = rounds.measure("another peer comes", async |_| {
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
        anyhow::bail!("there are three");
    };

    let disconnected = rounds.measure("a peer goes", async |_| {
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
    for web in &webs {
        web.namespace.delete().await?;
    }

    lost_nothing(connected)?;
    lost_nothing(disconnected)
}

/// Removes what is left of naples in one of the others.
fn forget(cluster: &Cluster) -> Result<()> {
    let mut command = cluster.kubectl();
    let tenant = format!("liqo-tenant-{NAPLES}");
    command.args(["delete", "namespace", &tenant, "--ignore-not-found"]);
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    Ok(())
}
