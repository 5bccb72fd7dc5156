//! The first ConfigMap after the virtual kubelet was killed.

use crate::clusters::{OFFLOADED, Pair, ROME};
use crate::processes::ids;
use crate::watch::Watch;
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use tokio::time::timeout;

const ROUNDS: u32 = 3;

/// The time between rounds. A container that ends soon after its start is started again later each time.
const PAUSE: Duration = Duration::from_secs(5);

/// The interval between looks at the processes.
const INTERVAL: Duration = Duration::from_millis(5);

/// Kubernetes starts a container that has ended twice after 10 s, and then after twice the time.
const LIMIT: Duration = Duration::from_secs(90);

const PROGRAM: &str = "virtual-kubelet";

pub(super) async fn run(pair: &Pair) -> Result<Vec<f64>> {
    let remote = format!("{OFFLOADED}-{ROME}");
    let here: Api<ConfigMap> = Api::namespaced(pair.rome.client.clone(), OFFLOADED);
    let there: Api<ConfigMap> = Api::namespaced(pair.milan.client.clone(), &remote);
    let mut samples = Vec::new();
    for round in 0..ROUNDS {
        tokio::time::sleep(PAUSE).await;
        let mut watch = Watch::start(&there).await?;
        let before = ids(ROME, PROGRAM)?;
        for id in &before {
            kill(Pid::from_raw(i32::try_from(*id)?), Signal::SIGKILL)?;
        }
        let name = format!("restart-{round}");
        let object = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        here.create(&PostParams::default(), &object).await?;
        let created = Instant::now();
        let next = async { timeout(LIMIT, next(&before)).await.context("no restart")? };
        let (started, arrived) = tokio::try_join!(next, watch.created(&name))?;
        let since = started.max(created);
        samples.push(arrived.saturating_duration_since(since).as_secs_f64());
        here.delete(&name, &DeleteParams::default()).await?;
    }
    eprintln!("    restart: {samples:.2?}");

    Ok(samples)
}

/// Returns when another process of the program was first seen.
async fn next(before: &[u32]) -> Result<Instant> {
    loop {
        let now = ids(ROME, PROGRAM)?;
        if now.iter().any(|it| !before.contains(it)) {
            return Ok(Instant::now());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
