//! Offloaded pods under requests, whose containers are sampled from the provider's containerd.

use super::{is_gone, peered};
use crate::fixture::{Peering, SOON, liqoctl};
use crate::peering::unpeer;
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::containers::Sampler;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A Deployment of [`REPLICAS`] pods at the provider, its Service, and a client of the Service in the consumer.
const MANIFEST: &str = include_str!("../manifests/offloaded-requests.yaml");

const REPLICAS: usize = 6;

/// The longest time without a sample of the containers of a node that runs. A loaded machine needs seconds for a sample.
pub(super) const GAP_MAX: Duration = Duration::from_secs(15);

/// Interval of the requests by which tests measure delays.
const POLL: Duration = Duration::from_millis(20);

/// A Deployment whose pods run at the provider, under requests.
pub(super) struct Workload {
    pub(super) rome: &'static Cluster,
    pub(super) milan: &'static Cluster,
    /// The namespace in the consumer.
    pub(super) home: Namespace,
    /// The namespace at the provider.
    pub(super) remote: Namespace,
    /// The pods of the Deployment, as the consumer and the provider showed them at the start.
    pub(super) before: [Pods; 2],
    /// The requests that failed before the Service had endpoints.
    early_failures: usize,
    sampler: Sampler,
}

/// Pods by their name.
pub(super) type Pods = BTreeMap<String, Instance>;

/// The parts of a pod by which a replaced or restarted one is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) uid: String,
    pub(super) node: String,
    container: String,
    started: Option<String>,
    restarts: i32,
}

/// Replies and failures of the client's requests.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) replies: usize,
    pub(super) failures: Vec<String>,
}

impl Workload {
    /// Peers both clusters, offloads the namespace `name`, and waits until the pods in it are ready.
    pub(super) async fn start(peering: &'static Peering, name: &str) -> Result<Self> {
        Self::start_with(peering, name, &[]).await
    }

    /// Does the same with annotations of the NamespaceOffloading, such as `liqo.io/repatriation=never`.
    pub(super) async fn start_with(
        peering: &'static Peering,
        name: &str,
        annotations: &[&str],
    ) -> Result<Self> {
        let [rome, milan] = peered(peering).await?;
        let home = Namespace::create(rome, name).await?;
        let strategy = "--pod-offloading-strategy=LocalAndRemote";
        liqoctl(rome, &["offload", "namespace", name, strategy])?;
        for annotation in annotations {
            let words = ["annotate", "namespaceoffloading", "offloading", annotation];
            home.kubectl(&words).await?;
        }
        home.apply(MANIFEST).await?;
        home.rolled_out("deployment/web").await?;
        home.wait("pod/client", "Ready").await?;
        let remote = Namespace::existing(milan, &format!("{name}-{ROME}")).await?;
        let mut workload = Self {
            early_failures: 0,
            before: [pods(&home).await?, pods(&remote).await?],
            sampler: Sampler::start(milan, remote.name())?,
            rome,
            milan,
            home,
            remote,
        };
        for pods in &workload.before {
            ensure!(pods.len() == REPLICAS, "{pods:?}");
        }
        workload.replies_after_now().await?;
        workload.early_failures = workload.requests().await?.failures.len();

        Ok(workload)
    }

    /// Waits for ten further replies.
    pub(super) async fn replies_after_now(&self) -> Result<()> {
        let before = self.requests().await?.replies;
        until(
            Deadline::after(SOON),
            "replies of the Service",
            async || {
                let requests = self.requests().await?;
                ensure!(requests.replies >= before + 10, "{requests:?}");
                Ok(())
            },
        )
        .await
    }

    /// Returns the outcomes of the client's requests so far.
    pub(super) async fn requests(&self) -> Result<Requests> {
        let log = self.home.kubectl(&["logs", "client"]).await?;
        let (replies, failures): (Vec<_>, Vec<_>) = log.lines().partition(|it| *it == "reply");

        Ok(Requests {
            replies: replies.len(),
            failures: failures.into_iter().map(str::to_owned).collect(),
        })
    }

    /// Checks that no request has failed since the start.
    pub(super) async fn ensure_no_request_failed(&self) -> Result<()> {
        let requests = self.requests().await?;
        let failures = requests.failures.get(self.early_failures..);
        let failures = failures.context("the log of the client is shorter")?;
        eprintln!("{}: {} replies", self.home.name(), requests.replies);
        ensure!(failures.is_empty(), "{failures:?}");

        Ok(())
    }

    /// Waits until consumer and provider show the pods as they were at the start.
    pub(super) async fn until_unchanged(&self) -> Result<()> {
        let what = "the pods to be as they were";
        until(Deadline::after(SOON), what, async || {
            let [home, remote] = &self.before;
            let now = pods(&self.home).await?;
            ensure!(now == *home, "consumer: {now:#?} instead of {home:#?}");
            let now = pods(&self.remote).await?;
            ensure!(now == *remote, "provider: {now:#?} instead of {remote:#?}");
            Ok(())
        })
        .await
    }

    /// Creates a pod that runs at the provider, and returns when it existed there.
    pub(super) async fn next_pod(&self, name: &str) -> Result<Instant> {
        self.create_pod(name, &[]).await?;
        self.arrival(name).await
    }

    /// Creates a pod for the virtual node, which is scheduled once it has no scheduling gate.
    pub(super) async fn create_pod(&self, name: &str, gates: &[&str]) -> Result<()> {
        let gates: Vec<_> = gates.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "next"}},
            "spec": {
                "schedulingGates": gates,
                "terminationGracePeriodSeconds": 0,
                "nodeSelector": {"liqo.io/type": "virtual-node"},
                "containers": [{
                    "name": "next",
                    "image": "localhost/tools:latest",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                }],
            },
        });
        let pod: Pod = serde_json::from_value(pod)?;
        let local: Api<Pod> = Api::namespaced(self.home.client().clone(), self.home.name());
        until(Deadline::after(SOON), "the creation of a pod", async || {
            local.create(&PostParams::default(), &pod).await?;
            Ok(())
        })
        .await
    }

    /// Waits until a pod exists at the provider, and returns the time.
    pub(super) async fn arrival(&self, name: &str) -> Result<Instant> {
        let remote: Api<Pod> = Api::namespaced(self.remote.client().clone(), self.remote.name());
        let what = format!("{name} at the provider");
        promptly(&what, async || {
            let pod = remote.get_opt(name).await;
            pod.is_ok_and(|it| it.is_some()).then(Instant::now)
        })
        .await
    }

    /// Waits until a pod of [`Self::create_pod`] is ready, and deletes it.
    pub(super) async fn ready_and_deleted(&self, name: &str) -> Result<()> {
        self.home.wait(&format!("pod/{name}"), "Ready").await?;
        let local: Api<Pod> = Api::namespaced(self.home.client().clone(), self.home.name());
        local.delete(name, &DeleteParams::default()).await?;
        for namespace in [&self.home, &self.remote] {
            let wait = ["wait", "pod", name, "--for=delete", "--timeout=60s"];
            namespace.kubectl(&wait).await?;
        }

        Ok(())
    }

    /// Ends the sampler. Checks that the samples have no gap, that no pod ran twice at the same time, and that none of the
    /// Deployment's pods but `replaced` ones was lost, restarted or replaced.
    pub(super) async fn judge(self, replaced: &[String]) -> Result<Ended> {
        let history = self.sampler.finish()?;
        eprintln!(
            "{}: {} pods ran, longest time between samples {:.1?}",
            self.home.name(),
            history.pods().len(),
            history.longest_gap()
        );
        history.ensure_none_doubled()?;
        history.ensure_none_restarted()?;
        let [_, remote] = &self.before;
        for pod in remote.keys().filter(|it| !replaced.contains(it)) {
            history.ensure_unchanged(pod)?;
        }
        if replaced.is_empty() {
            let gap = history.longest_gap();
            ensure!(gap < GAP_MAX, "no sample for {gap:?}");
        }

        Ok(Ended {
            clusters: [self.rome, self.milan],
            home: self.home,
        })
    }
}

/// A [`Workload`] that was judged, and still runs.
pub(super) struct Ended {
    clusters: [&'static Cluster; 2],
    home: Namespace,
}

impl Ended {
    /// Ends the offloading and the peering.
    pub(super) async fn end(self) -> Result<()> {
        let [rome, milan] = self.clusters;
        let name = self.home.name();
        liqoctl(rome, &["unoffload", "namespace", name, "--skip-confirm"])?;
        is_gone(milan, &format!("{name}-{ROME}"))?;
        self.home
            .kubectl(&["delete", "deployment,pods", "--all", "--wait"])
            .await?;

        unpeer([rome, milan], &[]).await
    }
}

/// Calls `check` every 20 ms until it returns a value. Unlike [`until`], which polls less often, it serves measurements.
pub(super) async fn promptly<T>(
    what: &str,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> Result<T> {
    let poll = async {
        loop {
            if let Some(value) = check().await {
                return value;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let polled = tokio::time::timeout(SOON, poll).await;

    polled.with_context(|| format!("timed out waiting for {what}"))
}

/// Returns the pods of the Deployment in a namespace of the consumer or the provider.
pub(super) async fn pods(namespace: &Namespace) -> Result<Pods> {
    pods_with(namespace, "app=web").await
}

/// Returns the pods that a label selector selects.
///
/// # Errors
///
/// Returns an error if one of them does not run.
pub(super) async fn pods_with(namespace: &Namespace, selector: &str) -> Result<Pods> {
    let api: Api<Pod> = Api::namespaced(namespace.client().clone(), namespace.name());
    let list = api.list(&ListParams::default().labels(selector)).await?;

    list.into_iter()
        .map(|pod| {
            let name = pod.name_any();
            let instance = instance(&pod).with_context(|| format!("{name} does not run"))?;
            Ok((name, instance))
        })
        .collect()
}

/// Returns a running pod.
fn instance(pod: &Pod) -> Option<Instance> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status: &ContainerStatus = statuses.first()?;
    let running = status.state.as_ref()?.running.as_ref()?;

    Some(Instance {
        uid: pod.metadata.uid.clone()?,
        node: pod.spec.as_ref()?.node_name.clone()?,
        container: status.container_id.clone()?,
        started: running.started_at.as_ref().map(|it| it.0.to_string()),
        restarts: status.restart_count,
    })
}

/// Returns the pods of the virtual kubelet of the virtual node [`MILAN`].
pub(super) async fn virtual_kubelets(rome: &Cluster) -> Result<Api<Pod>> {
    Ok(Api::namespaced(
        rome.client().await?,
        &format!("liqo-tenant-{MILAN}"),
    ))
}

/// Returns whether a pod has the condition `Ready`.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|it| it.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();

    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}
