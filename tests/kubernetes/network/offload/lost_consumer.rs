//! A consumer's cluster that is deleted while its pods run at the provider.

use super::workload::{Pods, pods};
use super::{is_gone, until_node_is_ready};
use crate::NAPLES;
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::{connected_again, peer};
use crate::removal::kubectl;
use crate::three::naples;
use anyhow::{Result, ensure};
use kubernetes_lab::cluster::{self, Cluster};
use kubernetes_lab::containers::Sampler;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::spec::Spec;
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_of_a_consumer_whose_cluster_is_deleted_run_until_the_provider_ends_them,
    );
}

const MANIFEST: &str = include_str!("../manifests/offloaded.yaml");

/// The time for which the pods are watched after the deletion. The loss of the network is known after a second, and that of a
/// node after 40 s.
const WATCHED: Duration = Duration::from_secs(60);

const INTERVAL: Duration = Duration::from_secs(1);

async fn pods_of_a_consumer_whose_cluster_is_deleted_run_until_the_provider_ends_them(
    peering: &'static Peering,
) -> Result<()> {
    connected_again(peering);
    let naples = naples(peering, Spec::new(NAPLES)).await?;
    let [_, milan] = peering.clusters();
    peer([&naples, milan], &["--cpu=4", "--memory=4Gi"])?;
    until_node_is_ready([&naples, milan]).await?;
    // It ends with its cluster.
    kubectl(&naples, &["create", "namespace", "orphans"])?;
    let home = Namespace::existing(&naples, "orphans").await?;
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(&naples, &["offload", "namespace", "orphans", strategy])?;
    home.apply(MANIFEST).await?;
    home.rolled_out("deployment/web").await?;
    let name = format!("orphans-{NAPLES}");
    let remote = Namespace::existing(milan, &name).await?;
    let before = pods(&remote).await?;
    ensure!(!before.is_empty(), "no pod runs at the provider");

    let sampler = Sampler::start(milan, &name)?;
    cluster::remove(NAPLES)?;
    until_unreachable(milan).await?;
    run_on(&remote, &before).await?;
    let history = sampler.finish()?;
    history.ensure_none_doubled()?;
    history.ensure_none_restarted()?;
    for pod in before.keys() {
        history.ensure_unchanged(pod)?;
    }

    liqoctl(milan, &["force", "unpeer", NAPLES, "--skip-confirm"])?;
    until(Deadline::after(SOON), "the end of the pods", async || {
        is_gone(milan, &name)
    })
    .await
}

/// Waits until the provider has lost the tunnel to the consumer.
async fn until_unreachable(provider: &Cluster) -> Result<()> {
    let tenant = format!("liqo-tenant-{NAPLES}");
    until(
        Deadline::after(SOON),
        "the loss of the tunnel",
        async || {
            let path = "jsonpath={.items[*].status.value}";
            let words = ["get", "connections", "-n", &tenant, "-o", path];
            let state = kubectl(provider, &words)?;
            ensure!(state == "Error", "the Connection is {state:?}");
            Ok(())
        },
    )
    .await
}

/// Checks all the time that the pods are the same.
async fn run_on(remote: &Namespace, before: &Pods) -> Result<()> {
    let start = Instant::now();
    let mut ticks = tokio::time::interval(INTERVAL);
    while start.elapsed() < WATCHED {
        ticks.tick().await;
        let now = pods(remote).await?;
        ensure!(now == *before, "{now:#?} instead of {before:#?}");
    }

    Ok(())
}
