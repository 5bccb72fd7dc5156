//! Tests that the Connection, the ForeignCluster and `liqoctl info` report a fault.

use crate::fixture::{Peering, SOON, Suite, connection, liqoctl, serial};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use control_api::ForeignCluster;
use control_api::networking::connection::PATH_HEALTHY;
use kube::Api;
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};
use tests::stall;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_blocked_overlay_is_reported_everywhere_within_five_seconds
    );
}

/// The time within which a fault must be reported. The test adds the time for which the machine
/// stalled.
const PROMPT: Duration = Duration::from_secs(5);

/// The node whose overlay is blocked.
const NODE: &str = "it-rome-worker";

async fn a_blocked_overlay_is_reported_everywhere_within_five_seconds(
    peering: &'static Peering,
) -> Result<()> {
    healthy(peering).await?;
    let ruleset = "add table inet fault; \
        add chain inet fault out { type filter hook output priority -350; }; \
        add rule inet fault out udp dport 6091 drop";
    let mut nodes = peering.rome.nodes().into_iter();
    let node = nodes
        .find(|node| node.name() == NODE)
        .context("no such node")?;

    let blocked = node.clone();
    let overlay = cleanup::defer(format!("table fault of {NODE}"), async move || {
        let commands = "add table inet fault; delete table inet fault";
        blocked.exec("nft", &[commands]).map(drop)
    });
    let stalls = stall::Witness::start();
    let start = Instant::now();
    node.exec("nft", &[ruleset])?;
    reported(peering).await?;
    let took = start.elapsed();
    let stalls = stalls.finish();
    eprintln!("a blocked overlay was reported everywhere ({took:.1?}, {stalls:?})");
    ensure!(
        took <= PROMPT + stalls.longest * stalls.count,
        "it took {took:?}"
    );
    overlay.run().await?;

    healthy(peering).await
}

/// Waits until all reports in both clusters name the node.
async fn reported(peering: &Peering) -> Result<()> {
    let deadline = Deadline::after(SOON);
    until(deadline, "the Connection to name the node", async || {
        let (status, reason, message) = condition(&peering.rome, MILAN).await?;
        ensure!(
            status == "False" && reason == "LocalOverlay",
            "{status} {reason} {message}"
        );
        ensure!(message.contains(NODE), "{message}");
        Ok(())
    })
    .await?;
    until(deadline, "the remote Connection to report it", async || {
        let (status, reason, message) = condition(&peering.milan, ROME).await?;
        ensure!(
            status == "False" && reason == "RemoteOverlay",
            "{status} {reason} {message}"
        );
        Ok(())
    })
    .await?;
    until(
        deadline,
        "the ForeignCluster to name the node",
        async || {
            let api: Api<ForeignCluster> = Api::all(peering.rome.client().await?);
            let status = serde_json::to_string(&api.get(MILAN).await?.status)?;
            ensure!(
                status.contains("SomeNotReady") && status.contains(NODE),
                "{status}"
            );
            Ok(())
        },
    )
    .await?;
    let info = liqoctl(&peering.rome, &["info", "peer", MILAN, "-o", "json"])?;
    ensure!(info.contains("Unhealthy") && info.contains(NODE), "{info}");

    Ok(())
}

/// Waits until both clusters report that the path from node to node is healthy.
async fn healthy(peering: &Peering) -> Result<()> {
    until(
        Deadline::after(SOON),
        "a healthy path from node to node",
        async || {
            for (here, there) in [(&peering.rome, MILAN), (&peering.milan, ROME)] {
                let (status, reason, message) = condition(here, there).await?;
                let is_healthy = status == "True" && reason == "EndToEnd";
                ensure!(is_healthy, "{}: {status} {reason} {message}", here.name());
            }
            Ok(())
        },
    )
    .await
}

/// Returns status, reason and message of the condition [`PATH_HEALTHY`].
async fn condition(here: &Cluster, there: &str) -> Result<(String, String, String)> {
    let status = connection(here, there).await?.status.unwrap_or_default();
    let mut conditions = status.conditions.into_iter();
    let condition = conditions.find(|condition| condition.type_ == PATH_HEALTHY);
    let condition = condition.context("no condition yet")?;

    Ok((condition.status, condition.reason, condition.message))
}
