//! Two replicas of a virtual kubelet, of which the consumer loses the active one with its node.

use super::workload::{Workload, is_ready, virtual_kubelets};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, install, install_with, serial};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use kubernetes_lab::cleanup;
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_standby_of_the_virtual_kubelet_serves_after_the_lease_of_a_lost_one,
    );
}

/// The validity of the Lease of the active replica.
const LEASE: Duration = Duration::from_secs(15);

/// The time within which the standby serves the next pod once the Lease has expired.
const SERVED: Duration = Duration::from_secs(2);

/// The index of the consumer's node that is lost. Node 0 runs the API server.
const NODE: u8 = 1;

async fn a_standby_of_the_virtual_kubelet_serves_after_the_lease_of_a_lost_one(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, _] = peering.clusters();
    let single = cleanup::defer("one replica of the virtual kubelet", async || {
        install(&peering.rome)
    });
    install_with(rome, &["--set=virtualKubelet.replicas=2"])?;
    let workload = Workload::start(peering, "standby").await?;
    let node = rome.node(NODE);
    let active = active_on(&workload, node.name()).await?;

    let returned = node.clone();
    let power = cleanup::defer("power of the consumer's node", async move || {
        returned.restart()
    });
    // The webhook may be called at the lost node, too, so the pod is created earlier.
    workload.create_pod("next", &["lost-node"]).await?;
    node.kill()?;
    let start = Instant::now();
    let ungated = r#"{"spec": {"schedulingGates": null}}"#;
    let patch = ["patch", "pod", "next", "--type=merge", "-p", ungated];
    workload.home.kubectl(&patch).await?;
    let served = workload.arrival("next").await? - start;
    eprintln!(
        "the standby served {:.2} s after the loss",
        served.as_secs_f64()
    );
    ensure!(served <= LEASE + SERVED, "{served:?}");
    let holder = holder(&workload).await?;
    ensure!(holder != active, "the Lease is still held by {active}");
    workload.ready_and_deleted("next").await?;

    power.run().await?;
    workload
        .home
        .wait(&format!("node/{}", node.name()), "Ready")
        .await?;
    workload.until_unchanged().await?;
    workload.judge(&[]).await?.end().await?;
    single.run().await
}

/// Waits until two replicas are ready on different nodes, and the active one is on this node. Returns the name of the active
/// one. A deleted active replica passes the Lease to the other one.
async fn active_on(workload: &Workload, node: &str) -> Result<String> {
    let kubelets = virtual_kubelets(workload.rome).await?;
    let what = format!("an active virtual kubelet on {node}");
    until(Deadline::after(SOON), &what, async || {
        let pods = kubelets.list(&ListParams::default()).await?.items;
        ensure!(
            pods.len() == 2 && pods.iter().all(is_ready),
            "not two are ready"
        );
        let active = holder(workload).await?;
        let is_there = |pod: &&Pod| {
            let spec = pod.spec.as_ref();
            spec.and_then(|it| it.node_name.as_deref()) == Some(node)
        };
        let there: Vec<_> = pods
            .iter()
            .filter(is_there)
            .map(|it| it.name_any())
            .collect();
        if there.len() == 1 && there.contains(&active) {
            return Ok(active);
        }
        let replaced = if there.len() == 2 { &there[0] } else { &active };
        kubelets.delete(replaced, &DeleteParams::default()).await?;
        anyhow::bail!("{replaced} is replaced")
    })
    .await
}

/// Returns the holder of the Lease of the virtual node.
async fn holder(workload: &Workload) -> Result<String> {
    let tenant = format!("liqo-tenant-{MILAN}");
    let leases: Api<Lease> = Api::namespaced(workload.rome.client().await?, &tenant);
    let spec = leases.get(MILAN).await?.spec;

    spec.and_then(|it| it.holder_identity)
        .context("the Lease has no holder")
}
