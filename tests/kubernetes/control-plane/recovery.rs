//! Reflection of many objects with real API servers: after cuts, restarts and faults, both clusters are equal.

mod comparison;
mod driver;
mod events;
mod objects;
mod pods;

use crate::fixture::{Fixture, LIQO, Suite, serial};
use crate::other_kinds;
use crate::refusals::scene::Scene;
use crate::runtime::relay::Relay;
use crate::upstream::offloading::process::{VirtualKubelet, provider};
use anyhow::{Result, ensure};
use comparison::until_equal;
use driver::random_changes_and_faults_leave_both_clusters_equal;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::time::sleep_until;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_cut_of_five_minutes_leaves_both_clusters_equal,
        a_restart_during_changes_leaves_both_clusters_equal,
        random_changes_and_faults_leave_both_clusters_equal,
    );
}

/// The transport gives up silent connections after 45 s, and delays grow to their limits meanwhile.
const CUT: Duration = Duration::from_secs(300);

/// Two clusters whose virtual kubelet reaches the provider through a relay.
struct Cluster {
    scene: Scene,
    relay: Relay,
}

impl Cluster {
    async fn start() -> Result<Self> {
        let peering = Scene::clusters().await?;
        other_kinds::define(&peering).await?;
        peering.milan.apply(&other_kinds::rights("remote")).await?;
        peering.peer().await?;
        // Without networking, addresses of consumers need a permission.
        let policy = json!({
            "apiVersion": "authentication.liqo.io/v1beta1",
            "kind": "TenantPolicy",
            "metadata": {"name": "rome", "namespace": LIQO},
            "spec": {"endpointCIDRs": ["10.244.0.0/16"]},
        });
        peering.milan.apply(&policy).await?;
        let relay = Relay::start(peering.milan.server()).await?;
        let direct = String::from_utf8(provider(&peering.rome).await?)?;
        let relayed = direct.replace(peering.milan.server(), &relay.url());
        ensure!(relayed != direct, "the kubeconfig has another URL");
        let kubelet = VirtualKubelet::start_with(&peering.rome, Some(relayed.as_bytes())).await?;
        let scene = Scene::offload(peering, kubelet).await?;

        Ok(Self { scene, relay })
    }

    /// Creates all objects, and waits until they are reflected.
    async fn populated() -> Result<Self> {
        let cluster = Self::start().await?;
        let start = Instant::now();
        objects::create(&cluster.scene.rome).await?;
        let created = start.elapsed();
        until_equal(&cluster.scene).await?;
        eprintln!(
            "all objects are created after {created:.0?}, and reflected after {:.0?}",
            start.elapsed()
        );

        Ok(cluster)
    }

    /// Waits until both clusters are equal again.
    async fn recovers(&self) -> Result<()> {
        let start = Instant::now();
        until_equal(&self.scene).await?;
        eprintln!("both clusters are equal after {:.0?}", start.elapsed());

        Ok(())
    }
}

async fn a_cut_of_five_minutes_leaves_both_clusters_equal(_: &'static Fixture) -> Result<()> {
    let cluster = Cluster::populated().await?;
    let end = tokio::time::Instant::now() + CUT;
    cluster.relay.cut();
    objects::change(&cluster.scene.rome, 0).await?;
    sleep_until(end).await;
    objects::change(&cluster.scene.rome, 1).await?;
    cluster.relay.mend();

    cluster.recovers().await
}

/// The managers of both clusters are killed, too.
async fn a_restart_during_changes_leaves_both_clusters_equal(_: &'static Fixture) -> Result<()> {
    let mut cluster = Cluster::populated().await?;
    cluster.scene.kubelet.halt().await?;
    objects::change(&cluster.scene.rome, 0).await?;
    for site in [&cluster.scene.peering.rome, &cluster.scene.peering.milan] {
        site.crash_manager().await?;
    }
    cluster.scene.kubelet.resume()?;
    objects::change(&cluster.scene.rome, 1).await?;

    cluster.recovers().await
}
