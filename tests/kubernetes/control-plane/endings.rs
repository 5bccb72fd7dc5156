//! Tests of the end of peerings that is interrupted, or whose other cluster does not respond, has returned, or was installed
//! again.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl::{command, execute, liqoctl, refusal, run};
use crate::traces::Traces;
use anyhow::{Context as _, Result, ensure};
use control_api::core::foreign_cluster::ForeignClusterConditionStatus;
use control_api::{ForeignCluster, Identity, Quota, ResourceSlice, Tenant, VirtualNode};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kubernetes_lab::control_plane::Component;
use serde_json::json;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        interrupted_commands_are_completed_by_running_them_again,
        a_dead_provider_that_returns_loses_the_objects_that_were_deleted_meanwhile,
        a_cluster_that_was_installed_again_is_left_and_peered_again,
        a_provider_that_is_gone_is_left_without_force,
    );
}

const PEER: [&str; 2] = ["peer", "--networking-disabled"];

/// Limit of an end for a cluster that is declared dead, and of the report that one is unreachable.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Each command is killed after each of the lines that it prints.
async fn interrupted_commands_are_completed_by_running_them_again(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let traces = [Traces::before(&rome).await?, Traces::before(&milan).await?];
    for words in [&PEER[..], &["unpeer"]] {
        let mut lines = 1;
        while !is_killed_after(&rome, &milan, words, lines).await? {
            lines += 1;
            ensure!(lines < 60, "{words:?} prints lines without end");
        }
        ensure!(lines > 8, "{words:?} has printed {lines} lines only");
        if words == PEER {
            ensure!(rome.names::<VirtualNode>("").await? == ["milan"]);
        }
    }
    traces[0].until_restored(&rome).await?;
    traces[1].until_restored(&milan).await?;

    // Both directions end at the same time.
    liqoctl(&rome, &milan, &PEER).await?;
    liqoctl(&milan, &rome, &PEER).await?;
    let unpeer = ["unpeer"];
    let (here, there) = tokio::join!(
        liqoctl(&rome, &milan, &unpeer),
        liqoctl(&milan, &rome, &unpeer)
    );
    here?;
    there?;
    // Each may have kept the namespaces for the other one.
    liqoctl(&rome, &milan, &unpeer).await?;
    traces[0].until_restored(&rome).await?;
    traces[1].until_restored(&milan).await
}

/// Kills a command when it has printed so many lines; returns whether it has ended with success before.
async fn is_killed_after(
    local: &Site,
    remote: &Site,
    words: &[&str],
    lines: usize,
) -> Result<bool> {
    let flag = format!("--remote-kubeconfig={}", remote.kubeconfig().display());
    let mut child = command(local, &[words, &[&flag]].concat())?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?).lines();
    for _ in 0..lines {
        if output.next_line().await?.is_none() {
            let status = child.wait().await?;
            ensure!(status.success(), "{words:?}: {status}");
            return Ok(true);
        }
    }
    child.kill().await?;
    Ok(false)
}

async fn a_dead_provider_that_returns_loses_the_objects_that_were_deleted_meanwhile(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let traces = [Traces::before(&rome).await?, Traces::before(&milan).await?];
    liqoctl(&rome, &milan, &PEER).await?;
    let words = [
        "create",
        "resourceslice",
        "more",
        "--remote-cluster-id=milan",
    ];
    run(&rome, &words).await?;
    let quotas: Api<Quota> = Api::namespaced(milan.client.clone(), &milan.tenant_namespace());
    until(Deadline::after(SOON), "the Quotas", async || {
        let list = quotas.list(&Default::default()).await?.items.len();
        ensure!(list == 2, "{list}");
        Ok(())
    })
    .await?;

    // A provider that responds to nothing.
    milan
        .control_plane()
        .pause_component(Component::ApiServer)?;
    let start = Instant::now();
    let error = refusal(&rome, &milan.kubeconfig(), &["unpeer"]).await?;
    ensure!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    ensure!(error.contains("nothing was changed"), "{error}");
    ensure!(error.contains("liqoctl force unpeer"), "{error}");
    ensure!(rome.names::<VirtualNode>("").await?.len() == 2);

    // One of two slices is deleted, and waits for a provider that is declared dead at most a moment.
    let foreign: Api<ForeignCluster> = Api::all(rome.client.clone());
    let declare = |value: Option<&str>| {
        let annotations = json!({"liqo.io/foreign-cluster-permanently-unreachable": value});
        Patch::Merge(json!({"metadata": {"annotations": annotations}}))
    };
    let parameters = PatchParams::default();
    foreign
        .patch("milan", &parameters, &declare(Some("true")))
        .await?;
    let slices: Api<ResourceSlice> = Api::namespaced(rome.client.clone(), &rome.tenant_namespace());
    let start = Instant::now();
    slices.delete("more", &DeleteParams::default()).await?;
    until(Deadline::after(SOON), "the end of the slice", async || {
        ensure!(slices.get_opt("more").await?.is_none());
        Ok(())
    })
    .await?;
    eprintln!("a slice of a dead provider: {:?}", start.elapsed());

    milan
        .control_plane()
        .resume_component(Component::ApiServer)?;
    foreign.patch("milan", &parameters, &declare(None)).await?;
    until(
        Deadline::after(SOON),
        "the end of the replica",
        async || {
            let names = milan.names::<ResourceSlice>("").await?;
            ensure!(names == ["milan"], "{names:?}");
            let left = quotas.list(&Default::default()).await?.items.len();
            ensure!(left == 1, "{left} Quotas");
            Ok(())
        },
    )
    .await?;

    // What `force unpeer` has left at the other cluster is ended by it, or by `unpeer`.
    milan
        .control_plane()
        .pause_component(Component::ApiServer)?;
    // The controller manager creates it again, as it does a moment after `peer`.
    foreign.delete("milan", &DeleteParams::default()).await?;
    let start = Instant::now();
    run(&rome, &["force", "unpeer", "milan"]).await?;
    let took = start.elapsed();
    eprintln!("force unpeer: {took:?}");
    ensure!(took < AT_ONCE, "{took:?}");
    traces[0].until_restored(&rome).await?;
    milan
        .control_plane()
        .resume_component(Component::ApiServer)?;
    ensure!(milan.names::<Tenant>("").await? == ["rome"]);
    liqoctl(&rome, &milan, &["unpeer"]).await?;
    traces[1].until_restored(&milan).await
}

async fn a_cluster_that_was_installed_again_is_left_and_peered_again(
    _: &'static Fixture,
) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let traces = [Traces::before(&rome).await?, Traces::before(&milan).await?];
    liqoctl(&rome, &milan, &PEER).await?;

    // The consumer has another key: the provider refuses it, and names the remedy.
    let keys: Api<Secret> = Api::namespaced(rome.client.clone(), "liqo");
    let old = rome.cluster_key().await?;
    keys.delete("authentication-keys", &DeleteParams::default())
        .await?;
    until(Deadline::after(SOON), "another key", async || {
        let new = rome.cluster_key().await?;
        ensure!(new.public_key() != old.public_key());
        Ok(())
    })
    .await?;
    let words = ["peer", "--networking-disabled", "--timeout=5s"];
    let error = refusal(&rome, &milan.kubeconfig(), &words).await?;
    ensure!(error.contains("the provider reports"), "{error}");
    ensure!(error.contains("run `liqoctl unpeer` first"), "{error}");
    liqoctl(&rome, &milan, &["unpeer"]).await?;
    traces[1].until_restored(&milan).await?;
    liqoctl(&rome, &milan, &PEER).await?;

    // The provider has another cluster ID at the same address.
    rename(&milan, "naples").await?;
    let flag = format!("--remote-kubeconfig={}", milan.kubeconfig().display());
    let (_, _, error) = execute(&rome, &["unpeer", &flag]).await?;
    ensure!(
        error.contains("no tenant namespace of naples (known peers: milan)"),
        "{error}"
    );
    let identities = rome.names::<Identity>("").await?;
    ensure!(identities.contains(&"controlplane-milan".to_owned()));
    run(&rome, &["force", "unpeer", "milan"]).await?;
    traces[0].until_restored(&rome).await?;
    liqoctl(&rome, &milan, &PEER).await?;
    liqoctl(&rome, &milan, &["unpeer"]).await?;
    rename(&milan, "milan").await?;
    traces[0].until_restored(&rome).await?;
    traces[1].until_restored(&milan).await?;

    // The consumer has another cluster ID: the objects of the earlier one are ended by the provider.
    liqoctl(&rome, &milan, &PEER).await?;
    rename(&rome, "florence").await?;
    liqoctl(&rome, &milan, &PEER).await?;
    run(&milan, &["force", "unpeer", "rome"]).await?;
    let tenants: Api<Tenant> = Api::all(milan.client.clone());
    let left = tenants.list(&Default::default()).await?.items;
    ensure!(left.len() == 1, "{left:?}");
    liqoctl(&rome, &milan, &["unpeer"]).await?;
    traces[0].until_restored(&rome).await?;
    traces[1].until_restored(&milan).await
}

/// The provider was restored with another certificate authority, or has ended the peering on its side.
async fn a_provider_that_is_gone_is_left_without_force(_: &'static Fixture) -> Result<()> {
    let (rome, milan) = Site::pair().await?;
    let traces = [Traces::before(&rome).await?, Traces::before(&milan).await?];
    liqoctl(&rome, &milan, &PEER).await?;
    // The provider issues another authority than that of its API server. Kubernetes' controller manager would restore it.
    let control_plane = milan.control_plane();
    control_plane.pause_component(Component::ControllerManager)?;
    let other = rcgen::generate_simple_self_signed(["other".to_owned()])?;
    let maps: Api<ConfigMap> = Api::namespaced(milan.client.clone(), "liqo");
    let patch = Patch::Merge(json!({"data": {"ca.crt": other.cert.pem()}}));
    maps.patch("kube-root-ca.crt", &PatchParams::default(), &patch)
        .await?;
    let foreign: Api<ForeignCluster> = Api::all(rome.client.clone());
    until(
        Deadline::after(SOON),
        "the report that milan is not reached",
        async || {
            let milan = foreign.get("milan").await?;
            ensure!(milan.is_api_server(ForeignClusterConditionStatus::Error));
            Ok(())
        },
    )
    .await?;
    control_plane.resume_component(Component::ControllerManager)?;
    left(&rome, &milan, &traces, "another authority").await?;

    liqoctl(&rome, &milan, &PEER).await?;
    let tenants: Api<Tenant> = Api::namespaced(milan.client.clone(), &milan.tenant_namespace());
    tenants.delete("rome", &DeleteParams::default()).await?;
    until(Deadline::after(SOON), "the end of the Tenant", async || {
        ensure!(tenants.get_opt("rome").await?.is_none());
        Ok(())
    })
    .await?;
    left(&rome, &milan, &traces, "no Tenant").await
}

/// Ends a peering with a provider that is gone, in time and without traces.
async fn left(consumer: &Site, provider: &Site, traces: &[Traces; 2], what: &str) -> Result<()> {
    let start = Instant::now();
    liqoctl(consumer, provider, &["unpeer"]).await?;
    let took = start.elapsed();
    eprintln!("unpeer from a provider with {what}: {took:?}");
    ensure!(took < AT_ONCE, "{took:?}");
    traces[0].until_restored(consumer).await?;
    ensure!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    traces[1].until_restored(provider).await
}

/// Changes the cluster ID, as a new installation does that finds objects of an earlier one.
async fn rename(site: &Site, id: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(site.client.clone(), "liqo");
    let patch = Patch::Merge(json!({"data": {"CLUSTER_ID": id}}));
    maps.patch("liqo-clusterid-configmap", &PatchParams::default(), &patch)
        .await?;
    Ok(())
}
