//! Parts of both clusters are killed while offloaded pods serve requests. No other pod may be lost, doubled or restarted.

use super::workload::{Workload, is_ready, pods, promptly, virtual_kubelets};
use crate::MILAN;
use crate::converged::liqo;
use crate::fixture::{Peering, SOON, Suite, serial};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::node::control::{self, Request};
use kubernetes_lab::pod;
use kubernetes_lab::wait::{Deadline, until};
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_restarted_virtual_kubelet_serves_the_next_pod_at_once,
        killed_managers_leave_pods_untouched,
        a_killed_api_server_of_the_provider_leaves_pods_untouched,
        a_lost_node_of_the_provider_affects_only_its_pods,
    );
}

/// The time within which a restarted virtual kubelet serves the next pod, from its readiness.
const SERVED: Duration = Duration::from_secs(2);

/// The time within which Kubernetes replaces the pods of a lost node with the taint `out-of-service`: the node is not ready
/// after 50 s, and the garbage collector of pods runs every 20 s.
const REPLACED: Duration = Duration::from_secs(70 + SOON.as_secs());

/// The program of a virtual kubelet, and that of a manager.
const KUBELET: &str = "virtual-kubelet";
const MANAGER: &str = "controller-manager";

const MANAGERS: &str = "deployment/liqo-controller-manager";

/// The index of the provider's node that is lost. Node 0 runs the API server.
const NODE: u8 = 1;

async fn a_restarted_virtual_kubelet_serves_the_next_pod_at_once(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "kubelet-kill").await?;
    let kubelets = virtual_kubelets(workload.rome).await?;

    let killed = only(&kubelets).await?;
    let start = Instant::now();
    pod::kill(&killed.uid().context("no UID")?, KUBELET)?;
    let restarted = async || {
        let now = kubelets.get(&killed.name_any()).await.ok()?;
        (restarts(&now) > restarts(&killed) && is_ready(&now)).then(Instant::now)
    };
    served(&workload, "after-kill", start, restarted).await?;

    let deleted = only(&kubelets).await?.name_any();
    let start = Instant::now();
    kubelets.delete(&deleted, &DeleteParams::default()).await?;
    // Until its process ends, the old one may serve the pod.
    promptly("the end of the old virtual kubelet", async || {
        let pod = kubelets.get_opt(&deleted).await.ok()?;
        pod.is_none().then_some(())
    })
    .await?;
    let replaced = async || {
        let now = kubelets.list(&ListParams::default()).await.ok()?;
        let mut others = now.iter().filter(|it| it.name_any() != deleted);
        others.any(is_ready).then(Instant::now)
    };
    served(&workload, "after-deletion", start, replaced).await?;

    workload.until_unchanged().await?;
    workload.ensure_no_request_failed().await?;
    workload.judge(&[]).await?.end().await
}

/// Creates a pod after the virtual kubelet has ended. Checks that the pod exists at the provider [`SERVED`] after the pod is
/// created and the next virtual kubelet is ready.
async fn served(
    workload: &Workload,
    name: &str,
    start: Instant,
    ready: impl AsyncFnMut() -> Option<Instant>,
) -> Result<()> {
    let created = Instant::now();
    let ready = promptly("a ready virtual kubelet", ready);
    let (ready, served) = tokio::try_join!(ready, workload.next_pod(name))?;
    eprintln!(
        "{name}: the next pod was created after {:.2} s, and existed at the provider after {:.2} s; the virtual kubelet was \
         ready after {:.2} s",
        (created - start).as_secs_f64(),
        (served - start).as_secs_f64(),
        (ready - start).as_secs_f64(),
    );
    let late = served.saturating_duration_since(ready.max(created));
    ensure!(late <= SERVED, "{late:?}");

    workload.ready_and_deleted(name).await
}

async fn killed_managers_leave_pods_untouched(peering: &'static Peering) -> Result<()> {
    let workload = Workload::start(peering, "manager-kill").await?;
    for cluster in peering.clusters() {
        kill_managers(cluster).await?;
        workload.next_pod("next").await?;
        workload.ready_and_deleted("next").await?;
        workload.until_unchanged().await?;
    }

    workload.ensure_no_request_failed().await?;
    workload.judge(&[]).await?.end().await
}

/// Kills the processes of all replicas, and waits until the replicas are ready again.
async fn kill_managers(cluster: &Cluster) -> Result<()> {
    let liqo = liqo(cluster).await?;
    let api: Api<Pod> = Api::namespaced(liqo.client().clone(), liqo.name());
    let selector = format!("app.kubernetes.io/name={MANAGER}");
    let parameters = ListParams::default().labels(&selector);
    let before = api.list(&parameters).await?.items;
    ensure!(before.len() == 2, "{} managers", before.len());
    for manager in &before {
        pod::kill(&manager.uid().context("no UID")?, MANAGER)?;
    }
    until(Deadline::after(SOON), "restarted managers", async || {
        for manager in &before {
            let now = api.get(&manager.name_any()).await?;
            let is_back = restarts(&now) > restarts(manager) && is_ready(&now);
            ensure!(is_back, "{} is not ready", manager.name_any());
        }
        Ok(())
    })
    .await?;

    liqo.rolled_out(MANAGERS).await
}

async fn a_killed_api_server_of_the_provider_leaves_pods_untouched(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "api-server-kill").await?;
    let node = workload.milan.node(0);
    let kill = Request::Signal("kube-apiserver".to_owned(), nix::libc::SIGKILL);
    control::send(node.name(), &kill)?;
    until(Deadline::after(SOON), "the API server", async || {
        let ready = workload.remote.kubectl(&["get", "--raw=/readyz"]);
        ready.await.map(drop)
    })
    .await?;
    workload.next_pod("next").await?;
    workload.ready_and_deleted("next").await?;

    workload.until_unchanged().await?;
    workload.ensure_no_request_failed().await?;
    workload.judge(&[]).await?.end().await
}

/// Kubernetes deletes the pods of a node that an administrator declares as out of service, and the provider's manager creates
/// them again on another node. The consumer's pods stay.
async fn a_lost_node_of_the_provider_affects_only_its_pods(
    peering: &'static Peering,
) -> Result<()> {
    let workload = Workload::start(peering, "node-kill").await?;
    let node = workload.milan.node(NODE);
    let [home, remote] = workload.before.clone();
    let of_node = remote.iter().filter(|(_, it)| it.node == node.name());
    let lost: Vec<_> = of_node.map(|(name, _)| name.clone()).collect();
    ensure!(
        !lost.is_empty() && lost.len() < remote.len(),
        "pods on the node: {lost:?}"
    );

    let returned = node.clone();
    let power = cleanup::defer("power of the provider's node", async move || {
        returned.restart()
    });
    let taint = out_of_service(&workload, node.name());
    node.kill()?;
    workload
        .remote
        .kubectl(&["taint", "node", node.name(), &format!("{TAINT}={VALUE}")])
        .await?;
    until(Deadline::after(REPLACED), "other remote pods", async || {
        let now = pods(&workload.remote).await?;
        for (name, before) in &remote {
            let now = now
                .get(name)
                .with_context(|| format!("{name} is missing"))?;
            let is_lost = lost.contains(name);
            ensure!((now != before) == is_lost, "{name}: {now:?}");
            ensure!(now.node != node.name(), "{name} is on the lost node");
        }
        Ok(())
    })
    .await?;
    workload.replies_after_now().await?;
    until(Deadline::after(SOON), "the consumer's pods", async || {
        let now = pods(&workload.home).await?;
        for (name, before) in &home {
            let now = now
                .get(name)
                .with_context(|| format!("{name} is missing"))?;
            ensure!(
                now.uid == before.uid && now.node == MILAN,
                "{name}: {now:?}"
            );
            ensure!(lost.contains(name) || now == before, "{name}: {now:?}");
        }
        Ok(())
    })
    .await?;

    taint.run().await?;
    power.run().await?;
    workload
        .remote
        .wait(&format!("node/{}", node.name()), "Ready")
        .await?;
    workload.judge(&lost).await?.end().await
}

/// The taint of a node that is shut down and does not return before its pods are replaced.
const TAINT: &str = "node.kubernetes.io/out-of-service";

const VALUE: &str = "nodeshutdown:NoExecute";

fn out_of_service(workload: &Workload, node: &str) -> cleanup::Deferred {
    let (namespace, node) = (workload.remote.clone(), node.to_owned());
    cleanup::defer(format!("taint of {node}"), async move || {
        let taints = namespace
            .get(&format!("node/{node}"), "{.spec.taints}")
            .await?;
        if taints.contains(TAINT) {
            let taint = format!("{TAINT}-");
            namespace.kubectl(&["taint", "node", &node, &taint]).await?;
        }
        Ok(())
    })
}

/// Returns the pod of a namespace with a single pod.
pub(super) async fn only(api: &Api<Pod>) -> Result<Pod> {
    let mut pods = api.list(&ListParams::default()).await?.items;
    match (pods.pop(), pods.pop()) {
        (Some(pod), None) => Ok(pod),
        _ => bail!("there is not one pod"),
    }
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|it| it.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|it| it.restart_count)
        .sum()
}
