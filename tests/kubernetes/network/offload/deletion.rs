//! Pods and namespaces that are deleted while their counterparts at the provider are created.

use super::{is_gone, peered};
use crate::ROME;
use crate::fixture::{Peering, SOON, Suite, liqoctl, serial};
use crate::peering::unpeer;
use anyhow::{Context as _, Result, ensure};
use control_api::ShadowPod;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::containers::Sampler;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_that_are_deleted_during_their_creation_leave_nothing,
        a_namespace_that_is_deleted_during_the_creation_of_pods_leaves_nothing,
    );
}

/// The pods of each [`Stage`], and those of a deleted namespace.
const PODS: usize = 8;

/// Interval at which the tests look for the next stage of a pod.
const POLL: Duration = Duration::from_millis(5);

/// The state of a pod in which it is deleted.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Created,
    Scheduled,
    ShadowPodExists,
    RemotePodExists,
    Running,
}

const STAGES: [Stage; 5] = [
    Stage::Created,
    Stage::Scheduled,
    Stage::ShadowPodExists,
    Stage::RemotePodExists,
    Stage::Running,
];

/// Access to an offloaded namespace in both clusters.
#[derive(Clone)]
struct Sides {
    local: Api<Pod>,
    shadows: Api<ShadowPod>,
    remote: Api<Pod>,
    secrets: Api<Secret>,
}

impl Sides {
    fn new(home: &Namespace, remote: &Namespace) -> Self {
        let client = remote.client();
        Self {
            local: Api::namespaced(home.client().clone(), home.name()),
            shadows: Api::namespaced(client.clone(), remote.name()),
            remote: Api::namespaced(client.clone(), remote.name()),
            secrets: Api::namespaced(client.clone(), remote.name()),
        }
    }

    async fn create(&self, name: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "sleep",
                    "image": "localhost/tools:latest",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                }],
            },
        });
        let pod = serde_json::from_value(pod)?;
        self.local.create(&PostParams::default(), &pod).await?;

        Ok(())
    }

    async fn is_reached(&self, stage: Stage, name: &str) -> Result<bool> {
        let reached = match stage {
            Stage::Created => true,
            Stage::Scheduled => {
                let pod = self.local.get(name).await?;
                pod.spec.is_some_and(|it| it.node_name.is_some())
            }
            Stage::ShadowPodExists => self.shadows.get_opt(name).await?.is_some(),
            Stage::RemotePodExists => self.remote.get_opt(name).await?.is_some(),
            Stage::Running => {
                let pod = self.local.get(name).await?;
                let phase = pod.status.and_then(|it| it.phase);
                phase.as_deref() == Some("Running")
            }
        };

        Ok(reached)
    }

    /// Creates a pod, and deletes it in this stage.
    async fn create_and_delete(&self, stage: Stage, name: &str, grace: u32) -> Result<()> {
        self.create(name).await?;
        let end = Instant::now() + SOON;
        while !self.is_reached(stage, name).await? {
            ensure!(Instant::now() < end, "{name} does not become {stage:?}");
            tokio::time::sleep(POLL).await;
        }
        let parameters = DeleteParams::default().grace_period(grace);
        self.local.delete(name, &parameters).await?;

        Ok(())
    }

    /// Waits until no pod is left, nor any of its objects at the provider.
    async fn until_nothing_is_left(&self) -> Result<()> {
        until(Deadline::after(SOON), "nothing to be left", async || {
            let parameters = ListParams::default();
            let mut left = Vec::new();
            for (side, api) in [("consumer", &self.local), ("provider", &self.remote)] {
                let pods = api.list(&parameters).await?.into_iter();
                left.extend(pods.map(|it| format!("pod {} of the {side}", it.name_any())));
            }
            let shadows = self.shadows.list(&parameters).await?.into_iter();
            left.extend(shadows.map(|it| format!("ShadowPod {}", it.name_any())));
            let secrets = self.secrets.list(&parameters).await?.into_iter();
            left.extend(secrets.map(|it| format!("Secret {}", it.name_any())));
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
    }
}

async fn pods_that_are_deleted_during_their_creation_leave_nothing(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    let (home, remote) = offloaded(rome, milan, "deletion").await?;
    let sides = Sides::new(&home, &remote);
    let sampler = Sampler::start(milan, remote.name())?;

    // With a grace period of 0 s, the pod is gone before its virtual kubelet has seen the deletion.
    for grace in [1, 0] {
        let mut tasks = Vec::new();
        for stage in STAGES {
            for index in 0..PODS {
                let name = format!("{stage:?}-{grace}-{index}").to_lowercase();
                let sides = sides.clone();
                tasks.push(tokio::spawn(async move {
                    let deleted = sides.create_and_delete(stage, &name, grace).await;
                    deleted.with_context(|| name)
                }));
            }
        }
        for task in tasks {
            task.await.context("a task has panicked")??;
        }
        sides.until_nothing_is_left().await?;
    }

    // Writes that were on their way have arrived before those of a later pod.
    let last = "last";
    sides
        .create_and_delete(Stage::Running, last, 1)
        .await
        .context(last)?;
    sides.until_nothing_is_left().await?;
    let history = sampler.finish()?;
    eprintln!("{} pods ran until they were deleted", history.pods().len());
    history.ensure_none_left()?;
    history.ensure_none_doubled()?;

    liqoctl(
        rome,
        &["unoffload", "namespace", home.name(), "--skip-confirm"],
    )?;
    is_gone(milan, remote.name())?;
    unpeer([rome, milan], &[]).await
}

async fn a_namespace_that_is_deleted_during_the_creation_of_pods_leaves_nothing(
    peering: &'static Peering,
) -> Result<()> {
    let [rome, milan] = peered(peering).await?;
    for stage in STAGES {
        let name = format!("deletion-{stage:?}").to_lowercase();
        let (home, remote) = offloaded(rome, milan, &name).await?;
        let sides = Sides::new(&home, &remote);
        for index in 0..PODS {
            sides.create(&format!("pod-{index}")).await?;
        }
        let last = format!("pod-{}", PODS - 1);
        let end = Instant::now() + SOON;
        while !sides.is_reached(stage, &last).await? {
            ensure!(Instant::now() < end, "{last} does not become {stage:?}");
            tokio::time::sleep(POLL).await;
        }
        let start = Instant::now();
        home.delete().await?;
        until(
            Deadline::after(SOON),
            "both namespaces to be gone",
            async || {
                is_gone(rome, home.name())?;
                is_gone(milan, remote.name())
            },
        )
        .await?;
        eprintln!("{name}: gone after {:.1} s", start.elapsed().as_secs_f64());
    }

    unpeer([rome, milan], &[]).await
}

/// Creates an offloaded namespace. Returns it, and its remote namespace.
async fn offloaded(rome: &Cluster, milan: &Cluster, name: &str) -> Result<(Namespace, Namespace)> {
    let home = Namespace::create(rome, name).await?;
    let strategy = "--pod-offloading-strategy=Remote";
    liqoctl(rome, &["offload", "namespace", name, strategy])?;
    let remote = Namespace::existing(milan, &format!("{name}-{ROME}")).await?;

    Ok((home, remote))
}
