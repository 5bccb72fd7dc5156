//! Commands in offloaded pods, and the end of an offloading.

use crate::clusters::{MILAN, Pair, ROME, Site};
use crate::pods::Place;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use kube::Api;
use kube::api::ListParams;
use kubernetes_lab::wait::SOON;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use tokio::process::Command;

/// The number of pairs of commands.
const COMMANDS: u32 = 20;

/// The number of pods of a namespace whose offloading ends.
const PODS: u32 = 10;

/// The interval between looks at the remote namespace.
const INTERVAL: Duration = Duration::from_millis(50);

/// Durations of `kubectl exec POD -- true` from its start to its exit, in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Exec {
    native_s: f64,
    offloaded_s: f64,
}

/// The end of the offloading of a namespace with pods, in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Unoffload {
    /// From the start of `liqoctl unoffload namespace` to its exit: the label and the remote namespace are gone.
    command_s: f64,
    /// Until pods and reflected objects are gone at the provider.
    objects_s: f64,
}

/// Runs commands in a pod of the provider and in an offloaded one in turn. Both exist.
pub(crate) async fn exec(
    pair: &Pair,
    native: &str,
    offloaded: &str,
    pod: &str,
) -> Result<Vec<Exec>> {
    let mut samples = Vec::new();
    // The first pair, which fills the caches of kubectl, is not kept.
    for index in 0..=COMMANDS {
        let native_s = exec_once(&pair.milan, native, pod).await?;
        let offloaded_s = exec_once(&pair.rome, offloaded, pod).await?;
        let sample = Exec {
            native_s,
            offloaded_s,
        };
        samples.extend((index > 0).then_some(sample));
    }

    Ok(samples)
}

async fn exec_once(site: &Site, namespace: &str, pod: &str) -> Result<f64> {
    let mut command = Command::from(site.cluster.kubectl());
    command.args(["--namespace", namespace, "exec", pod, "--", "true"]);
    let start = Instant::now();
    let output = command.output().await.context("failed to start kubectl")?;
    let taken = start.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl exec failed: {said}");

    Ok(taken.as_secs_f64())
}

/// Offloads a namespace with pods, and ends it.
pub(crate) async fn unoffload(pair: &Pair) -> Result<Unoffload> {
    const NAMESPACE: &str = "ending";

    pair.rome.namespace(NAMESPACE).await?;
    let offload = ["offload", "namespace", NAMESPACE];
    let strategy = ["--pod-offloading-strategy=Remote"];
    pair.liqoctl(&[&offload[..], &strategy].concat())?;
    let place = Place::new(&pair.rome.client, NAMESPACE);
    place.create("pod", PODS).await?;
    let remote = format!("{NAMESPACE}-{ROME}");
    let start = Instant::now();
    let mut command = Command::from(pair.release.command(&pair.rome.cluster));
    command.args(["unoffload", "namespace", NAMESPACE, "--skip-confirm"]);
    let ended = async {
        let output = command.output().await.context("failed to start liqoctl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "unoffload failed: {said}");
        Ok(start.elapsed())
    };
    let emptied = async {
        while !is_empty(&pair.milan, &remote).await? {
            ensure!(
                start.elapsed() < SOON,
                "objects stay in {remote} of {MILAN}"
            );
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(start.elapsed())
    };
    let (ended, emptied) = tokio::try_join!(ended, emptied)?;
    pair.rome.delete_namespace(NAMESPACE).await?;

    Ok(Unoffload {
        command_s: ended.as_secs_f64(),
        objects_s: emptied.as_secs_f64(),
    })
}

/// Returns whether a remote namespace has neither pods nor reflected objects.
async fn is_empty(site: &Site, namespace: &str) -> Result<bool> {
    let pods: Api<Pod> = Api::namespaced(site.client.clone(), namespace);
    let has_pods = !pods
        .list(&ListParams::default().limit(1))
        .await?
        .items
        .is_empty();
    let has_reflected = has::<Secret>(site, namespace).await?
        || has::<ConfigMap>(site, namespace).await?
        || has::<Service>(site, namespace).await?;

    Ok(!has_pods && !has_reflected)
}

async fn has<K>(site: &Site, namespace: &str) -> Result<bool>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(site.client.clone(), namespace);
    let reflected = ListParams::default().labels("offloading.liqo.io/origin");

    Ok(!api.list(&reflected.limit(1)).await?.items.is_empty())
}
