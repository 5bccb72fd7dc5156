//! 1,000 ConfigMaps that one `kubectl create -f` creates, with and without reflection.

use crate::bench::of_virtual_kubelet;
use crate::clusters::{LOCAL, OFFLOADED, Pair, ROME};
use crate::processes::memory;
use crate::watch::{Event, Watch};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Instant;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

const OBJECTS: usize = 1_000;

const ROUNDS: u32 = 3;

/// Durations in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    /// The command in a namespace that is not offloaded.
    local_s: f64,
    /// From the start of the command in an offloaded namespace until the provider has all objects.
    reflected_s: f64,
}

/// Takes samples. Also returns what the objects add to the virtual kubelet's memory, in MB.
pub(super) async fn run(pair: &Pair) -> Result<(Vec<Sample>, f64)> {
    let items: Vec<_> = (0..OBJECTS)
        .map(|index| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("many-{index}")},
                "data": {"key": format!("value {index}")},
            })
        })
        .collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    let list = list.to_string();
    let there = Api::namespaced(pair.milan.client.clone(), &format!("{OFFLOADED}-{ROME}"));
    let mut samples = Vec::new();
    let mut added_mb = 0.0;
    for round in 1..=ROUNDS {
        let start = Instant::now();
        create(pair, LOCAL, &list).await?;
        let local_s = start.elapsed().as_secs_f64();
        delete(pair, LOCAL).await?;

        let before = of_virtual_kubelet(&memory(ROME)?);
        let mut watch = Watch::<ConfigMap>::start(&there).await?;
        let start = Instant::now();
        let (_, last) = tokio::try_join!(create(pair, OFFLOADED, &list), arrived(&mut watch))?;
        let reflected_s = last.duration_since(start).as_secs_f64();
        if round == 1 {
            added_mb = of_virtual_kubelet(&memory(ROME)?) - before;
        }
        delete(pair, OFFLOADED).await?;
        left(&mut watch).await?;
        let sample = Sample {
            local_s,
            reflected_s,
        };
        eprintln!("    {sample:.2?}, {added_mb:.1} MB");
        samples.push(sample);
    }

    Ok((samples, added_mb))
}

async fn create(pair: &Pair, namespace: &str, list: &str) -> Result<()> {
    let mut command = Command::from(pair.rome.cluster.kubectl());
    command.args(["--namespace", namespace, "create", "--filename=-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let kubectl = command.stderr(Stdio::piped()).spawn();
    let mut kubectl = kubectl.context("failed to start kubectl")?;
    let mut input = kubectl.stdin.take().context("no standard input")?;
    input.write_all(list.as_bytes()).await?;
    drop(input);
    let output = kubectl.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl create failed: {said}");

    Ok(())
}

async fn delete(pair: &Pair, namespace: &str) -> Result<()> {
    let api: Api<ConfigMap> = Api::namespaced(pair.rome.client.clone(), namespace);
    let all = ListParams::default().fields("metadata.name!=kube-root-ca.crt");
    api.delete_collection(&DeleteParams::default(), &all)
        .await?;

    Ok(())
}

/// Returns when the last object was seen.
async fn arrived(watch: &mut Watch<ConfigMap>) -> Result<Instant> {
    let mut names = BTreeSet::new();
    loop {
        let (at, event) = watch.next().await?;
        if let Event::Put(object) = event {
            names.extend(Some(object.name_any()).filter(|it| it.starts_with("many-")));
        }
        if names.len() == OBJECTS {
            return Ok(at);
        }
    }
}

/// Waits until all objects are gone.
async fn left(watch: &mut Watch<ConfigMap>) -> Result<()> {
    let mut names = BTreeSet::new();
    while names.len() < OBJECTS {
        if let (_, Event::Deleted(object)) = watch.next().await? {
            names.insert(object.name_any());
        }
    }

    Ok(())
}
