//! Two VirtualNodes of one provider: the virtual kubelet that holds the Lease reflects objects for both, and the other one replaces it.

mod pair;
mod state;

use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::upstream::offloading::node::Node;
use anyhow::{Context as _, Result, ensure};
use control_runtime::Timing;
use pair::{FIRST, LEASE, Pair};
use serde_json::Value;
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_killed_holder_is_replaced_when_its_lease_expires,
        a_stopped_holder_is_replaced_at_once_and_stands_by_when_it_is_back,
        a_removed_virtual_node_leaves_the_objects_and_pods_of_the_other_one,
    );
}

/// Time beyond the durations of the election.
const MARGIN: Duration = Duration::from_secs(2);

/// Node of the pod that runs the first virtual kubelet.
const WORKER: &str = "rome-worker";

async fn a_killed_holder_is_replaced_when_its_lease_expires(_: &'static Fixture) -> Result<()> {
    let mut pair = Pair::start().await?;
    let before = pair.state().await?;

    pair.scene.kubelet.kill().await?;
    let deadline = Deadline::after(Timing::default().lease_duration + MARGIN);
    pair.change().await?;
    let holder = pair.holder(LEASE).await?;
    ensure!(
        holder == pair.scene.kubelet.pod,
        "{holder} holds the Lease before it has expired"
    );
    pair.until_held(LEASE, &pair.second.pod, deadline).await?;

    pair.until_changed(&before).await?;
    Ok(())
}

async fn a_stopped_holder_is_replaced_at_once_and_stands_by_when_it_is_back(
    _: &'static Fixture,
) -> Result<()> {
    let mut pair = Pair::start().await?;
    let before = pair.state().await?;

    pair.scene.kubelet.halt().await?;
    let deadline = at_once();
    pair.change().await?;
    pair.until_held(LEASE, &pair.second.pod, deadline).await?;
    let changed = pair.until_changed(&before).await?;

    pair.scene.kubelet.resume()?;
    let soon = Deadline::after(SOON);
    pair.until_held(FIRST, &pair.scene.kubelet.pod, soon)
        .await?;
    pair.until_renewed().await?;
    let holder = pair.holder(LEASE).await?;
    ensure!(holder == pair.second.pod, "{holder} has taken the Lease");
    pair.until_added("later").await?;
    pair.until_written(&changed, &["create configmaps later"])
        .await
}

/// The pod of the first virtual kubelet is deleted with its VirtualNode, and Kubernetes stops its process.
async fn a_removed_virtual_node_leaves_the_objects_and_pods_of_the_other_one(
    _: &'static Fixture,
) -> Result<()> {
    let mut pair = Pair::start().await?;
    let tenant = pair.scene.peering.rome.tenant_namespace();
    let pod = pair.scene.kubelet.pod.clone();
    // A pod that has no node would be deleted at once, and its token with it.
    let node = Node::add(&pair.scene.peering.rome, WORKER, &tenant).await?;
    node.bind(&pod, WORKER).await?;
    let before = pair.state().await?;

    let rest = &pair.scene.rome;
    rest.delete("ResourceSlice", &tenant, FIRST).await?;
    let is_ending = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
    rest.until(("Pod", &tenant, &pod), is_ending).await?;
    pair.scene.kubelet.halt().await?;
    let deadline = at_once();
    node.remove(&pod).await?;
    pair.change().await?;
    pair.until_held(LEASE, &pair.second.pod, deadline).await?;
    let changed = pair.until_changed(&before).await?;

    for (kind, namespace) in [("VirtualNode", tenant.as_str()), ("Node", "")] {
        until(Deadline::after(SOON), "the deletion", async || {
            let left = pair.scene.rome.get_opt(kind, namespace, FIRST).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        })
        .await?;
    }
    let local = pair.scene.rome.get("Pod", "shop", "web").await?;
    ensure!(
        local["metadata"]["deletionTimestamp"].is_null(),
        "the pod of the other VirtualNode is deleted"
    );
    pair.state().await?.is_unchanged(&changed)?;
    pair.until_written(&changed, &[])
        .await
        .context("after the deletion of the VirtualNode")
}

/// Returns the time by which a released Lease is acquired.
fn at_once() -> Deadline {
    Deadline::after(Timing::default().retry_period + MARGIN)
}
