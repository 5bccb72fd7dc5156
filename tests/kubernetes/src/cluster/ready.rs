//! Waits until a cluster is ready.

use crate::wait::{self, Deadline};
use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use std::time::{Duration, Instant};

/// The limit for each step of a cluster's start. The limit suffices on a machine with two CPUs,
/// even if other clusters start at the same time.
const STEP_TIMEOUT: Duration = Duration::from_secs(150);

/// The name of a cluster and the time at which its creation began, for progress messages.
#[derive(Debug)]
pub(super) struct Progress {
    name: String,
    start: Instant,
}

impl Progress {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            start: Instant::now(),
        }
    }

    pub(super) fn print(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        eprintln!("    {}: {what} ({seconds:.1} s)", self.name);
    }
}

/// Waits until the API server is ready.
pub(super) async fn api(client: &Client) -> Result<()> {
    wait::until(
        Deadline::after(STEP_TIMEOUT),
        "the API server to be ready",
        async || {
            let request = kube::api::Request::new("/readyz").list(&ListParams::default());
            client
                .request_text(request.context("a list request is valid")?)
                .await?;
            Ok(())
        },
    )
    .await
}

/// Waits until `count` nodes with a kubelet are ready. The kubelets of `started` nodes must have
/// renewed their leases after `since`, because the Node of a killed node stays Ready for a while.
pub(super) async fn nodes(
    client: &Client,
    count: usize,
    started: &[String],
    since: Timestamp,
) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    wait::until(
        Deadline::after(STEP_TIMEOUT),
        "all nodes to be ready",
        async || {
            for name in started {
                let spec = leases.get(name).await?.spec.context("a lease has a spec")?;
                let renewed = spec.renew_time.context("a lease has a renewTime")?;
                if renewed.0 < since {
                    bail!("the kubelet of {name} has not renewed its lease");
                }
            }
            let nodes = nodes
                .list(&ListParams::default().labels("type!=kwok"))
                .await?;
            let ready = nodes.items.iter().filter(|node| is_ready(node)).count();
            if ready < count {
                bail!("{ready} of {count} are ready");
            }
            Ok(())
        },
    )
    .await
}

/// Waits until the Deployments of DNS and storage are available.
pub(super) async fn addons(client: &Client) -> Result<()> {
    for (namespace, name) in crate::addons::DEPLOYMENTS {
        let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        wait::until(
            Deadline::after(STEP_TIMEOUT),
            &format!("{name} to be available"),
            async || {
                let deployment = api.get(name).await?;
                let status = deployment.status.context("no status")?;
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
