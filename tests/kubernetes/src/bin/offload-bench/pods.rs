//! A batch of bare pods: their creation and deletion with four requests at a time, as watches of both API servers show
//! them.

use crate::watch::{Event, Watch};
use anyhow::{Context as _, Result, ensure};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use std::collections::HashMap;
use std::time::Instant;

/// Requests at a time.
const PARALLEL: usize = 4;

/// Where pods are created, and where they run.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) pods: Api<Pod>,
    /// The pods of the provider, for offloaded pods.
    pub(crate) remote: Option<Api<Pod>>,
}

/// The durations of a batch, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Created {
    /// From the first request until all are ready.
    pub(crate) ready_s: f64,
    /// For each pod, from its binding until it exists at the provider; for pods of the provider, until the first status of
    /// the kubelet.
    pub(crate) placed_s: Vec<f64>,
}

impl Place {
    pub(crate) fn new(client: &Client, namespace: &str) -> Self {
        Self {
            pods: Api::namespaced(client.clone(), namespace),
            remote: None,
        }
    }

    /// Creates pods, and waits until all are ready.
    pub(crate) async fn create(&self, prefix: &str, count: u32) -> Result<Created> {
        let prefix = format!("{prefix}-");
        let mut local = Pods::start(&self.pods, &prefix).await?;
        let mut remote = match &self.remote {
            Some(pods) => Some(Pods::start(pods, &prefix).await?),
            None => None,
        };
        let names: Vec<_> = (0..count).map(|index| format!("{prefix}{index}")).collect();
        let start = Instant::now();
        let post = async |name: &String| -> Result<()> {
            let pod = pod(name)?;
            self.pods.create(&PostParams::default(), &pod).await?;
            Ok(())
        };
        stream::iter(names.iter().map(post))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        if let Err(error) = local.until(|seen| seen.ready.len() == names.len()).await {
            return Err(error.context(self.unready(&local.seen, names.len()).await?));
        }
        let last = local.seen.ready.values().max().context("no pod")?;
        let ready_s = last.duration_since(start).as_secs_f64();
        let placed = match &mut remote {
            Some(remote) => {
                remote.until(|seen| seen.added.len() == names.len()).await?;
                &remote.seen.added
            }
            None => &local.seen.reported,
        };
        let placed_s = local.seen.bound.iter().map(|(name, bound)| {
            let placed = placed.get(name).context("no such pod")?;
            Ok(placed.saturating_duration_since(*bound).as_secs_f64())
        });
        let placed_s = placed_s.collect::<Result<_>>()?;

        Ok(Created { ready_s, placed_s })
    }

    /// Describes the pods of a batch that were not seen ready: whether they are not, or the watch has missed it.
    async fn unready(&self, seen: &Seen, count: usize) -> Result<String> {
        let pods = self.pods.list(&ListParams::default()).await?.items;
        let unseen = pods.iter().filter(|it| {
            let name = it.name_any();
            name.starts_with(&seen.prefix) && !seen.ready.contains_key(&name)
        });
        let unseen: Vec<_> = unseen.collect();
        let ready = unseen.iter().filter(|it| is_ready(it)).count();
        let first = unseen.iter().find(|it| !is_ready(it));
        let first = first.map(|it| (it.name_any(), &it.status));

        Ok(format!(
            "of {count} pods, {} were seen, {} bound, {} ready; {ready} others are ready, {} are not, the first: {first:?}",
            seen.added.len(),
            seen.bound.len(),
            seen.ready.len(),
            unseen.len() - ready,
        ))
    }

    /// Deletes the pods of a batch. Returns the time until all are gone.
    pub(crate) async fn delete(&self) -> Result<f64> {
        let mut local = Pods::start(&self.pods, "").await?;
        let names: Vec<_> = local.seen.added.keys().cloned().collect();
        ensure!(!names.is_empty(), "no pod to delete");
        let start = Instant::now();
        let delete = async |name: &String| -> Result<()> {
            self.pods.delete(name, &DeleteParams::default()).await?;
            Ok(())
        };
        stream::iter(names.iter().map(delete))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        local.until(|seen| seen.gone.len() == names.len()).await?;
        let last = local.seen.gone.values().max().context("no pod")?;

        Ok(last.duration_since(start).as_secs_f64())
    }
}

/// When each pod was first seen in a state, by its name.
#[derive(Default)]
struct Seen {
    /// The names of other pods begin with something else: those of an earlier batch that are not gone yet.
    prefix: String,
    added: HashMap<String, Instant>,
    bound: HashMap<String, Instant>,
    /// The kubelet has written the states of the containers.
    reported: HashMap<String, Instant>,
    ready: HashMap<String, Instant>,
    gone: HashMap<String, Instant>,
}

/// A watch of a namespace's pods.
struct Pods {
    seen: Seen,
    watch: Watch<Pod>,
}

impl Pods {
    async fn start(pods: &Api<Pod>, prefix: &str) -> Result<Self> {
        let watch = Watch::start(pods).await?;
        let mut seen = Seen {
            prefix: prefix.to_owned(),
            ..Seen::default()
        };
        for pod in &watch.listed {
            seen.note(pod, Instant::now());
        }

        Ok(Self { seen, watch })
    }

    /// Takes events until `is_complete`.
    async fn until(&mut self, is_complete: impl Fn(&Seen) -> bool) -> Result<()> {
        while !is_complete(&self.seen) {
            let (at, event) = self.watch.next().await?;
            match event {
                Event::Put(pod) => self.seen.note(&pod, at),
                Event::Deleted(pod) => {
                    self.seen.gone.entry(pod.name_any()).or_insert(at);
                }
            }
        }

        Ok(())
    }
}

impl Seen {
    fn note(&mut self, pod: &Pod, at: Instant) {
        let name = pod.name_any();
        if !name.starts_with(&self.prefix) {
            return;
        }
        self.added.entry(name.clone()).or_insert(at);
        if pod.spec.as_ref().is_some_and(|it| it.node_name.is_some()) {
            self.bound.entry(name.clone()).or_insert(at);
        }
        let status = pod.status.as_ref();
        if status.is_some_and(|it| it.container_statuses.is_some()) {
            self.reported.entry(name.clone()).or_insert(at);
        }
        if is_ready(pod) {
            self.ready.entry(name).or_insert(at);
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();

    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// A pod that sleeps until SIGTERM, and may run on a simulated node.
pub(crate) fn pod(name: &str) -> Result<Pod> {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            "containers": [{
                "name": "sleep", "image": "localhost/tools:latest", "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "trap exit TERM; sleep 1000000 & wait"],
            }],
        },
    });

    Ok(serde_json::from_value(pod)?)
}
