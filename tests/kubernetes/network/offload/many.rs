//! Many offloaded pods, all of which find their volumes.

use super::workload::is_ready;
use super::{is_gone, peered};
use crate::ROME;
use crate::fixture::{Peering, Suite, liqoctl, serial};
use crate::peering::unpeer;
use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use kubernetes_lab::containers::Sampler;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(suite, a_hundred_pods_find_their_volumes_at_once);
}

const PODS: usize = 100;

/// Requests that are sent at the same time.
const PARALLEL: usize = 4;

/// A part of the message of the kubelet if its cache of an object is not synchronized in time. If the object is missing, the
/// message says that it is not found or not registered.
const LATE: &str = "cache: timed out waiting for the condition";

/// The time within which a loaded machine starts and ends all pods.
const STARTED: Duration = Duration::from_secs(6 * 60);

/// The kubelet reports an Event `FailedMount` if a Secret or ConfigMap of a pod is missing when it starts the pod.
async fn a_hundred_pods_find_their_volumes_at_once(peering: &'static Peering) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let home = Namespace::create(rome, "many").await?;
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(rome, &["offload", "namespace", "many", strategy])?;
    let remote = Namespace::existing(milan, &format!("many-{ROME}")).await?;
    let sampler = Sampler::start(milan, remote.name())?;
    let pods: Api<Pod> = Api::namespaced(home.client().clone(), home.name());

    let start = Instant::now();
    let parameters = PostParams::default();
    let created = (0..PODS).map(|index| {
        let (pods, parameters) = (&pods, &parameters);
        async move {
            let pod = serde_json::from_value(pod(&format!("pod-{index}")))?;
            pods.create(parameters, &pod).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(created)
        .buffer_unordered(PARALLEL)
        .try_collect::<Vec<_>>()
        .await?;
    until(
        Deadline::after(STARTED),
        "all pods to be ready",
        async || {
            let pods = pods.list(&ListParams::default()).await?;
            let ready = pods.iter().filter(|it| is_ready(it)).count();
            ensure!(ready == PODS, "{ready} are ready");
            Ok(())
        },
    )
    .await?;
    eprintln!(
        "{PODS} pods were ready after {:.1} s",
        start.elapsed().as_secs_f64()
    );

    until(Deadline::after(STARTED), "samples of all", async || {
        ensure!(sampler.known() >= PODS, "{} are known", sampler.known());
        Ok(())
    })
    .await?;

    let events: Api<Event> = Api::namespaced(remote.client().clone(), remote.name());
    let with_reason = async |reason: &str| -> Result<Vec<String>> {
        let parameters = ListParams::default().fields(&format!("reason={reason}"));
        let events = events.list(&parameters).await?.into_iter();
        Ok(events.filter_map(|it| it.message).collect())
    };
    let started = with_reason("Started").await?.len();
    ensure!(started >= PODS, "only {started} Events of started pods");
    // The kubelet of a loaded machine also reports that its own watch of an existing Secret or ConfigMap begins late.
    let failed = with_reason("FailedMount").await?.into_iter();
    let (late, failed): (Vec<_>, Vec<_>) = failed.partition(|it| it.contains(LATE));
    eprintln!("{} volumes waited for the kubelet's watch", late.len());
    ensure!(failed.is_empty(), "{failed:#?}");

    let start = Instant::now();
    liqoctl(rome, &["unoffload", "namespace", "many", "--skip-confirm"])?;
    is_gone(milan, remote.name())?;
    eprintln!(
        "{PODS} pods were gone after {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let history = sampler.finish()?;
    ensure!(history.pods().len() == PODS, "{:?}", history.pods());
    history.ensure_none_restarted()?;
    history.ensure_none_doubled()?;
    history.ensure_none_left()?;

    home.kubectl(&["delete", "pods", "--all", "--wait"]).await?;
    unpeer([rome, milan], &[]).await
}

/// A pod with the token of its ServiceAccount and the root CA, which Kubernetes adds.
fn pod(name: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "sleep",
                "image": "localhost/tools:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
            }],
        },
    })
}
