//! metrics-server, which only some tests install, because it uses CPU and memory in an idle cluster.

use crate::cleanup;
use crate::cluster::Cluster;
use crate::namespace::Namespace;
use anyhow::{Context as _, Result};

const MANIFEST: &str = include_str!("../manifests/metrics-server.yaml");

/// The program, which is also the name of its Deployment.
const NAME: &str = "metrics-server";

/// The API that metrics-server serves.
const API: &str = "apiservice/v1beta1.metrics.k8s.io";

/// Installs metrics-server, and waits until it has metrics of a node. It is removed after the test.
///
/// # Errors
///
/// Returns an error if metrics-server does not become ready in time.
///
/// # Panics
///
/// Panics outside of a test's body, like [`cleanup::defer`].
pub async fn install(cluster: &Cluster) -> Result<()> {
    let versions = cluster.artifacts().versions()?;
    let version = versions.get(NAME);
    let version = version.with_context(|| format!("versions.json has no version of {NAME}"))?;
    let manifest = MANIFEST.replace("${VERSION}", version);
    let system = Namespace::existing(cluster, "kube-system").await?;
    let (namespace, installed) = (system.clone(), manifest.clone());
    cleanup::defer(format!("{NAME} of {}", cluster.name()), async move || {
        let delete = ["delete", "--ignore-not-found", "--wait=false", "-f", "-"];
        let deleted = namespace.kubectl_with(&delete, &installed).await;
        deleted.map(drop)
    });
    system.apply(&manifest).await?;
    system.rolled_out(&format!("deployment/{NAME}")).await?;

    system.wait(API, "Available").await
}
