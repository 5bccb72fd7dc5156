//! The time until the virtual node of an accepted ResourceSlice is ready, against the start of a bare pod.

use crate::clusters::{MILAN, Pair, is_ready};
use crate::pods::Place;
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kubernetes_lab::wait::SOON;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The interval between looks at an object.
const INTERVAL: Duration = Duration::from_millis(10);

/// Durations in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// From the creation of a bare pod of the consumer until it is ready.
    bare_pod_s: f64,
    /// From the acceptance of a ResourceSlice until its virtual node is ready.
    first_s: f64,
    /// The same, of a node that existed directly before.
    again_s: f64,
}

/// Takes samples. A bare pod is started in `local`.
pub(crate) async fn run(pair: &Pair, local: &Place, rounds: u32) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let bare_pod_s = local.create("bare", 1).await?.ready_s;
        local.delete().await?;
        let name = format!("slice-{round}");
        let first_s = start(pair, &name).await?;
        end(pair, &name).await?;
        let again_s = start(pair, &name).await?;
        end(pair, &name).await?;
        let sample = Sample {
            bare_pod_s,
            first_s,
            again_s,
        };
        eprintln!("    {sample:.2?}");
        samples.push(sample);
    }

    Ok(samples)
}

async fn start(pair: &Pair, name: &str) -> Result<f64> {
    let remote = format!("--remote-cluster-id={MILAN}");
    let words = ["create", "resourceslice", name, &remote];
    let (slices, nodes) = (slices(pair), nodes(pair));
    let resources = ["--cpu=1", "--memory=1Gi", "--pods=10"];
    let words = [&words[..], &resources].concat();
    let accepted = async {
        first(async || {
            let slice = slices.get_opt(name).await?;
            Ok(slice.is_some_and(|it| is_accepted(&it)))
        })
        .await
    };
    let ready = first(async || Ok(nodes.get_opt(name).await?.is_some_and(|it| is_ready(&it))));
    let mut command = tokio::process::Command::from(pair.release.command(&pair.rome.cluster));
    let created = async {
        let output = command.args(&words).output().await?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    };
    let ((), accepted, ready) = tokio::try_join!(created, accepted, ready)?;

    Ok(ready.saturating_duration_since(accepted).as_secs_f64())
}

/// Deletes a ResourceSlice, and waits until its virtual node is gone.
async fn end(pair: &Pair, name: &str) -> Result<()> {
    let (slices, nodes) = (slices(pair), nodes(pair));
    slices.delete(name, &DeleteParams::default()).await?;
    first(async || {
        let left = (slices.get_opt(name).await?, nodes.get_opt(name).await?);
        Ok(matches!(left, (None, None)))
    })
    .await
    .map(drop)
}

/// Returns when `holds` first returned true.
async fn first(holds: impl AsyncFn() -> Result<bool>) -> Result<Instant> {
    let start = Instant::now();
    while !holds().await? {
        if start.elapsed() > SOON {
            bail!("a virtual node takes too long");
        }
        tokio::time::sleep(INTERVAL).await;
    }

    Ok(Instant::now())
}

fn nodes(pair: &Pair) -> Api<Node> {
    Api::all(pair.rome.client.clone())
}

fn slices(pair: &Pair) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("authentication.liqo.io", "v1beta1", "ResourceSlice");
    let resource = ApiResource::from_gvk(&kind);
    let client = pair.rome.client.clone();
    Api::namespaced_with(client, &format!("liqo-tenant-{MILAN}"), &resource)
}

fn is_accepted(slice: &DynamicObject) -> bool {
    let conditions = slice.data["status"]["conditions"].as_array();
    let conditions = conditions.map(Vec::as_slice).unwrap_or_default();

    conditions.len() >= 2 && conditions.iter().all(|it| it["status"] == "Accepted")
}
