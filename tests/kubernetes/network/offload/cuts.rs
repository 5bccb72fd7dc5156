//! Offloaded pods while the provider is disconnected from all other clusters. They run on, and none is lost, doubled or
//! restarted.

use super::until_node_is_ready;
use super::workload::{Workload, pods};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, serial, until_connections_are};
use anyhow::{Result, ensure};
use kubernetes_lab::cleanup;
use kubernetes_lab::fault::{self, Uplink};
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_cut_of_four_minutes_replaces_no_pod,
        a_cut_of_ten_minutes_replaces_no_pod_that_is_never_repatriated,
    );
}

/// A cut that is shorter than the 300 s after which Kubernetes replaces the pods of an unreachable node.
const SHORT: Duration = Duration::from_secs(4 * 60);

/// A cut that is longer.
const LONG: Duration = Duration::from_secs(10 * 60);

/// Interval of the checks during a cut.
const INTERVAL: Duration = Duration::from_secs(1);

async fn a_cut_of_four_minutes_replaces_no_pod(peering: &'static Peering) -> Result<()> {
    let workload = Workload::start(peering, "short-cut").await?;
    cut(peering, workload, SHORT).await
}

async fn a_cut_of_ten_minutes_replaces_no_pod_that_is_never_repatriated(
    peering: &'static Peering,
) -> Result<()> {
    let never = ["liqo.io/repatriation=never"];
    let workload = Workload::start_with(peering, "long-cut", &never).await?;
    cut(peering, workload, LONG).await
}

async fn cut(peering: &'static Peering, workload: Workload, duration: Duration) -> Result<()> {
    let uplink = cleanup::defer("the uplink of the provider", async || {
        fault::set_uplink(&peering.milan, &Uplink::Plain)
    });
    fault::set_uplink(&peering.milan, &Uplink::Down)?;
    let start = Instant::now();
    let what = "the virtual node to be not ready";
    until(Deadline::after(SOON), what, async || {
        let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
        let ready = workload.home.get(&format!("node/{MILAN}"), path).await?;
        ensure!(ready != "True", "it is ready");
        Ok(())
    })
    .await?;
    eprintln!("the cut was noticed after {:.1?}", start.elapsed());
    let [home, _] = &workload.before;
    let mut ticks = tokio::time::interval(INTERVAL);
    while start.elapsed() < duration {
        ticks.tick().await;
        let terminating = "{.items[?(@.metadata.deletionTimestamp)].metadata.name}";
        let terminating = workload.home.get("pods", terminating).await?;
        ensure!(terminating.is_empty(), "deleted: {terminating}");
        let now = pods(&workload.home).await?;
        ensure!(now == *home, "{now:#?} instead of {home:#?}");
    }

    let back = Instant::now();
    uplink.run().await?;
    until_connections_are(peering, "Connected").await?;
    until_node_is_ready([workload.rome, workload.milan]).await?;
    workload.until_unchanged().await?;
    workload.replies_after_now().await?;
    eprintln!("the Service replied {:.1?} after the cut", back.elapsed());
    workload.next_pod("next").await?;
    workload.ready_and_deleted("next").await?;
    workload.judge(&[]).await?.end().await
}
