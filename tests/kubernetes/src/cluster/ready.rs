//! Waits until a cluster is what it should be.

use crate::wait::{self, Deadline};
use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use std::time::{Duration, Instant};

/// How long a cluster may take to come up: many at once share two processors.
const PATIENCE: Duration = Duration::from_secs(150);

/// Tells a person how far a cluster is.
#[derive(Debug)]
pub(super) struct Progress {
    name: String,
    start: Instant,
}

impl Progress {
    /// From now on.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            start: Instant::now(),
        }
    }

    /// Tells something that is done.
    pub(super) fn tell(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("    {}: {what} ({seconds:.1} s)", self.name);
    }
}

/// Waits until the API server says that it is ready.
pub(super) async fn api(client: &Client) -> Result<()> {
    wait::until(
        Deadline::after(PATIENCE),
        "the API server to be ready",
        async || {
            let request = kube::api::Request::new("/readyz").list(&ListParams::default());
            client
                .request_text(request.context("a path makes a request")?)
                .await?;
            Ok(())
        },
    )
    .await
}

/// Waits until `count` nodes with a kubelet are ready; the kubelets of those that were
/// `started` must have renewed their leases since then, for an API server believes the
/// dead for a while.
pub(super) async fn nodes(
    client: &Client,
    count: usize,
    started: &[String],
    since: Timestamp,
) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    wait::until(
        Deadline::after(PATIENCE),
        "all nodes to be ready",
        async || {
            for name in started {
                let spec = leases.get(name).await?.spec.context("a lease has a spec")?;
                let renewed = spec.renew_time.context("a lease tells when")?;
                if renewed.0 < since {
                    bail!("the kubelet of {name} has not said anything yet");
                }
            }
            let nodes = nodes
                .list(&ListParams::default().labels("type!=kwok"))
                .await?;
            let ready = nodes.items.iter().filter(|node| is_ready(node)).count();
            if ready < count {
                bail!("{ready} of {count} are");
            }
            Ok(())
        },
    )
    .await
}

/// Waits until DNS and storage run.
pub(super) async fn addons(client: &Client) -> Result<()> {
    for (namespace, name) in crate::addons::DEPLOYMENTS {
        let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        wait::until(
            Deadline::after(PATIENCE),
            &format!("{name} to be available"),
            async || {
                let deployment = api.get(name).await?;
                let status = deployment.status.context("it has no status yet")?;
                if status.available_replicas.unwrap_or(0) < 1 {
                    bail!("no replica is available");
                }
                Ok(())
            },
        )
        .await?;
    }

    Ok(())
}

fn is_ready(node: &Node) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
