//! The shop of ten services, which runs in both clusters, while the virtual kubelet is replaced.

use super::kills::only;
use super::peered;
use super::tools::Offloaded;
use super::workload::{GAP_MAX, Pods, is_ready, pods_with, virtual_kubelets};
use crate::MILAN;
use crate::fixture::{Peering, SOON, Suite, serial};
use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::containers::{History, Sampler};
use kubernetes_lab::manifest::{SHOP, SHOP_LOAD};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        no_request_to_a_shop_in_two_clusters_fails_while_the_virtual_kubelet_is_replaced,
    );
}

/// The namespace of the shop.
const NAME: &str = "boutique";

/// Selects the pods of the ten services and Redis, but not that of the load generator.
const SERVICES: &str = "app!=loadgenerator";

/// Number of pods that [`SERVICES`] selects.
const SERVICES_LEN: usize = 11;

/// Name that the shop reports for the cluster of a pod that is not offloaded.
const LOCAL: &str = "local";

async fn no_request_to_a_shop_in_two_clusters_fails_while_the_virtual_kubelet_is_replaced(
    peering: &'static Peering,
) -> Result<()> {
    let strategy = "--pod-offloading-strategy=LocalAndRemote";
    let offloaded = Offloaded::with_strategy(peered(peering).await?, NAME, strategy).await?;
    let Offloaded { home, remote, .. } = &offloaded;
    home.apply(SHOP).await?;
    let available = ["--for=condition=Available", "--timeout=120s"];
    let wait = ["wait", "deployments", "--all"];
    home.kubectl(&[&wait[..], &available].concat()).await?;
    let before = [
        pods_with(home, SERVICES).await?,
        pods_with(remote, SERVICES).await?,
    ];
    until_places_are_reported(home, &before[0]).await?;
    until_purchases_succeed(home).await?;

    let samplers = [
        Sampler::start(offloaded.rome, home.name())?,
        Sampler::start(offloaded.milan, remote.name())?,
    ];
    home.apply(SHOP_LOAD).await?;
    home.wait("job/loadgenerator", "jsonpath={.status.ready}=1")
        .await?;
    replace_virtual_kubelet(offloaded.rome).await?;
    let active = home.get("job/loadgenerator", "{.status.active}").await?;
    ensure!(
        active == "1",
        "the load ended before the virtual kubelet was replaced"
    );
    no_request_has_failed(home).await?;
    until_pods_are(home, &before[0]).await?;
    until_pods_are(remote, &before[1]).await?;
    // The pods at the provider have no containers in the consumer.
    let local = before[0].iter().filter(|(_, pod)| pod.node != MILAN);
    let local = local.map(|(name, _)| name);
    let [of_rome, of_milan] = samplers;
    ensure_unchanged(&of_rome.finish()?, local)?;
    ensure_unchanged(&of_milan.finish()?, before[1].keys())?;

    let workloads = ["delete", "deployments,jobs", "--all", "--wait"];
    home.kubectl(&workloads).await?;
    offloaded.end().await
}

/// Waits until the front end reports for each service the pod that serves it, and the cluster of that pod.
async fn until_places_are_reported(home: &Namespace, pods: &Pods) -> Result<()> {
    let path = format!("/api/v1/namespaces/{NAME}/services/frontend:80/proxy/api/where");
    until(
        Deadline::after(SOON),
        "the places of the services",
        async || {
            let places = home.kubectl(&["get", "--raw", &path]).await?;
            let places: BTreeMap<String, Value> = serde_json::from_str(&places)?;
            ensure!(places.len() == SERVICES_LEN, "{places:?}");
            let mut clusters = BTreeSet::new();
            for (service, place) in &places {
                let name = place["pod"].as_str().unwrap_or_default();
                let pod = pods.get(name);
                let pod = pod.with_context(|| format!("{service} is at {place}"))?;
                let is_of_service = name.starts_with(&format!("{service}-"));
                ensure!(is_of_service, "{service} is at {place}");
                let cluster = if pod.node == MILAN { MILAN } else { LOCAL };
                ensure!(place["cluster"] == cluster, "{service} is at {place}");
                clusters.insert(cluster);
            }
            ensure!(clusters == [LOCAL, MILAN].into(), "{clusters:?}");
            Ok(())
        },
    )
    .await
}

/// Waits until purchases succeed: the endpoints of new Services reach the proxies of both clusters later than the pods are
/// available.
async fn until_purchases_succeed(home: &Namespace) -> Result<()> {
    let buy = ["shop", "loadgenerator", "--rate=30", "--seconds=1"];
    let exec = ["exec", "deployment/frontend", "--"];
    let what = "purchases without a failed request";
    until(Deadline::after(SOON), what, async || {
        home.kubectl(&[&exec[..], &buy].concat()).await.map(drop)
    })
    .await
}

/// Deletes the pod of the virtual kubelet, and waits until its successor is ready.
async fn replace_virtual_kubelet(rome: &Cluster) -> Result<()> {
    let kubelets = virtual_kubelets(rome).await?;
    let deleted = only(&kubelets).await?.name_any();
    kubelets.delete(&deleted, &DeleteParams::default()).await?;
    let what = "the next virtual kubelet";
    until(Deadline::after(SOON), what, async || {
        let pods = kubelets.list(&ListParams::default()).await?;
        let mut others = pods.iter().filter(|it| it.name_any() != deleted);
        ensure!(others.any(is_ready), "it is not ready");
        Ok(())
    })
    .await
}

/// Waits until the load has ended. Fails with the report of the load generator if a request has failed.
async fn no_request_has_failed(home: &Namespace) -> Result<()> {
    let conditions = until(Deadline::after(SOON), "the end of the load", async || {
        let path = "{.status.conditions[*].type}";
        let conditions = home.get("job/loadgenerator", path).await?;
        let mut types = conditions.split_whitespace();
        let has_ended = types.any(|it| ["Complete", "Failed"].contains(&it));
        ensure!(has_ended, "{conditions:?}");
        Ok(conditions)
    })
    .await?;
    let report = home.kubectl(&["logs", "job/loadgenerator"]).await?;
    eprintln!("{NAME}: {}", report.trim());
    ensure!(
        conditions.contains("Complete") && report.contains(" failed=0 "),
        "{conditions}: {report}"
    );

    Ok(())
}

/// Waits until a namespace has the same pods with the same containers.
async fn until_pods_are(namespace: &Namespace, expected: &Pods) -> Result<()> {
    until(Deadline::after(SOON), "unchanged pods", async || {
        let now = pods_with(namespace, SERVICES).await?;
        ensure!(
            now == *expected,
            "{namespace:?}: {now:#?} instead of {expected:#?}"
        );
        Ok(())
    })
    .await
}

/// Checks that these pods had the same containers in all samples, and that no pod was doubled or restarted.
fn ensure_unchanged<'a>(history: &History, pods: impl Iterator<Item = &'a String>) -> Result<()> {
    let gap = history.longest_gap();
    ensure!(gap < GAP_MAX, "no sample for {gap:?}");
    history.ensure_none_doubled()?;
    history.ensure_none_restarted()?;
    let mut count = 0;
    for pod in pods {
        history.ensure_unchanged(pod)?;
        count += 1;
    }
    ensure!(count > 0, "there are no pods");

    Ok(())
}
