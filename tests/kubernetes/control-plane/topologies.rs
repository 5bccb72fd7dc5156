//! Tests of three clusters, each of which is consumer and provider of others, without networking.

use crate::authentication::site::{Site, tenant_namespace};
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl::{execute, liqoctl, refusal, run};
use crate::traces::Traces;
use anyhow::{Result, ensure};
use control_api::{ForeignCluster, Quota, ResourceSlice, VirtualNode};
use control_credentials::Subject;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        clusters_peer_in_each_topology_and_part_without_a_trace,
        a_tenant_namespace_that_is_deleted_by_hand_ends_both_directions_only_there,
    );
}

const PEER: [&str; 2] = ["peer", "--networking-disabled"];

/// Three clusters, and their peerings as pairs of consumer and provider.
struct Clusters {
    sites: [Site; 3],
    traces: [Traces; 3],
    peerings: BTreeSet<(usize, usize)>,
}

const ROME: usize = 0;
const MILAN: usize = 1;
const TURIN: usize = 2;

impl Clusters {
    async fn start() -> Result<Self> {
        let (rome, milan, turin) = tokio::try_join!(
            Site::start("rome", "milan", &[]),
            Site::start("milan", "rome", &[]),
            Site::start("turin", "rome", &[]),
        )?;
        let traces = [
            Traces::before(&rome).await?,
            Traces::before(&milan).await?,
            Traces::before(&turin).await?,
        ];

        Ok(Self {
            sites: [rome, milan, turin],
            traces,
            peerings: BTreeSet::new(),
        })
    }

    async fn peer(&mut self, consumer: usize, provider: usize) -> Result<()> {
        liqoctl(&self.sites[consumer], &self.sites[provider], &PEER).await?;
        self.peerings.insert((consumer, provider));
        Ok(())
    }

    async fn unpeer(&mut self, consumer: usize, provider: usize) -> Result<()> {
        liqoctl(&self.sites[consumer], &self.sites[provider], &["unpeer"]).await?;
        self.peerings.remove(&(consumer, provider));
        Ok(())
    }

    /// Waits until all clusters have the objects of exactly these peerings.
    async fn check(&self) -> Result<()> {
        for consumer in 0..self.sites.len() {
            for provider in 0..self.sites.len() {
                if consumer != provider {
                    self.check_pair(consumer, provider).await?;
                    self.check_role(consumer, provider).await?;
                }
            }
        }
        Ok(())
    }

    async fn check_pair(&self, consumer: usize, provider: usize) -> Result<()> {
        let (here, there) = (&self.sites[consumer], &self.sites[provider]);
        let local = tenant_namespace(&there.name);
        let remote = tenant_namespace(&here.name);
        let slices: Api<ResourceSlice> = Api::namespaced(here.client.clone(), &local);
        let nodes: Api<VirtualNode> = Api::namespaced(here.client.clone(), &local);
        let quotas: Api<Quota> = Api::namespaced(there.client.clone(), &remote);
        let user = Subject::resource_slice(&here.name, &there.name).common_name;
        let is_peered = self.peerings.contains(&(consumer, provider));
        let what = format!("the peering of {} with {}", here.name, there.name);
        until(Deadline::after(SOON), &what, async || {
            let slice = slices.get_opt(&there.name).await?;
            let node = nodes.get_opt(&there.name).await?;
            let quota = quotas.get_opt(&user).await?;
            let exist = [slice.is_some(), node.is_some(), quota.is_some()];
            ensure!(
                exist == [is_peered; 3],
                "slice, VirtualNode, Quota: {exist:?}"
            );
            let accepted = accepted(&json!(slice));
            ensure!(
                accepted == [is_peered; 2],
                "Authentication, Resources: {accepted:?}"
            );
            Ok(())
        })
        .await
    }

    /// Checks what the ForeignCluster of a peer says about it.
    async fn check_role(&self, here: usize, there: usize) -> Result<()> {
        let foreign: Api<ForeignCluster> = Api::all(self.sites[here].client.clone());
        let is_provider = self.peerings.contains(&(here, there));
        let is_consumer = self.peerings.contains(&(there, here));
        let role = match (is_consumer, is_provider) {
            (true, true) => "ConsumerAndProvider",
            (true, false) => "Consumer",
            (false, true) => "Provider",
            (false, false) => "none",
        };
        let peer = &self.sites[there].name;
        let what = format!("role {role} of {peer} in {}", self.sites[here].name);
        until(Deadline::after(SOON), &what, async || {
            let found = json!(foreign.get_opt(peer).await?);
            let actual = found["status"]["role"].as_str().unwrap_or("none");
            ensure!(actual == role, "{actual}");
            let modules = &found["status"]["modules"];
            let is_enabled = |module: &str| modules[module]["enabled"] == true;
            ensure!(is_enabled("authentication") == (is_consumer || is_provider));
            ensure!(is_enabled("offloading") == is_provider, "{modules}");
            ensure!(!is_enabled("networking"), "{modules}");
            Ok(())
        })
        .await
    }
}

/// Returns whether each of the two conditions is Accepted.
fn accepted(slice: &Value) -> [bool; 2] {
    ["Authentication", "Resources"].map(|type_| {
        let conditions = slice["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|it| it["type"] == type_ && it["status"] == "Accepted")
    })
}

/// After the end of the last peering, no ForeignCluster says that a module is enabled, so `uninstall` is not refused.
async fn clusters_peer_in_each_topology_and_part_without_a_trace(
    _: &'static Fixture,
) -> Result<()> {
    let mut clusters = Clusters::start().await?;
    // A consumer of two providers.
    clusters.peer(ROME, MILAN).await?;
    clusters.peer(ROME, TURIN).await?;
    clusters.check().await?;
    // A provider of two consumers.
    clusters.peer(MILAN, TURIN).await?;
    clusters.check().await?;
    // A ring of three; rome and turin are peered in both directions.
    clusters.peer(TURIN, ROME).await?;
    clusters.check().await?;
    let (is_success, _, error) =
        execute(&clusters.sites[TURIN], &["uninstall", "--skip-confirm"]).await?;
    ensure!(!is_success && error.contains("disable authentication for clusters"));

    // The end of one direction keeps the other one and the namespaces.
    let (rome, turin) = (&clusters.sites[ROME], &clusters.sites[TURIN]);
    let words = ["unpeer", "--delete-namespaces"];
    let error = refusal(rome, &turin.kubeconfig(), &words).await?;
    ensure!(error.contains("is also a consumer"), "{error}");
    clusters.check().await?;
    clusters.unpeer(ROME, TURIN).await?;
    clusters.check().await?;
    for (here, there) in [(ROME, TURIN), (TURIN, ROME)] {
        let namespaces: Api<Namespace> = Api::all(clusters.sites[here].client.clone());
        let name = tenant_namespace(&clusters.sites[there].name);
        let namespace = namespaces.get(&name).await?;
        ensure!(namespace.metadata.deletion_timestamp.is_none(), "{name}");
    }

    clusters.unpeer(MILAN, TURIN).await?;
    clusters.check().await?;
    clusters.unpeer(TURIN, ROME).await?;
    clusters.unpeer(ROME, MILAN).await?;
    clusters.check().await?;
    for (site, traces) in clusters.sites.iter().zip(&clusters.traces) {
        traces.until_restored(site).await?;
        let out = run(site, &["uninstall", "--skip-confirm"]).await?;
        ensure!(out.contains("Pre-uninstall checks passed"), "{out}");
    }
    Ok(())
}

/// The other peerings of the cluster, and the other direction's objects in the other cluster, are not affected.
async fn a_tenant_namespace_that_is_deleted_by_hand_ends_both_directions_only_there(
    _: &'static Fixture,
) -> Result<()> {
    let mut clusters = Clusters::start().await?;
    clusters.peer(ROME, MILAN).await?;
    clusters.peer(MILAN, ROME).await?;
    clusters.peer(ROME, TURIN).await?;
    clusters.check().await?;

    let namespaces: Api<Namespace> = Api::all(clusters.sites[ROME].client.clone());
    let name = tenant_namespace("milan");
    namespaces.delete(&name, &DeleteParams::default()).await?;
    until(
        Deadline::after(SOON),
        "the end of the namespace",
        async || {
            let left = namespaces.get_opt(&name).await?;
            ensure!(left.is_none(), "{:?}", left.and_then(|it| it.status));
            Ok(())
        },
    )
    .await?;
    clusters.check_pair(ROME, TURIN).await?;
    clusters.check_role(TURIN, ROME).await?;

    // The replicas of the deleted objects are gone, so what is left is ended by the command, and a new peering works.
    liqoctl(&clusters.sites[ROME], &clusters.sites[MILAN], &["unpeer"]).await?;
    liqoctl(&clusters.sites[MILAN], &clusters.sites[ROME], &["unpeer"]).await?;
    clusters.peerings = [(ROME, TURIN)].into();
    clusters.check().await?;
    clusters.traces[MILAN]
        .until_restored(&clusters.sites[MILAN])
        .await?;
    clusters.peer(ROME, MILAN).await?;
    clusters.check().await
}
