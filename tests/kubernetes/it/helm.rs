//! Tests of Helm releases.

use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, SOON, until};
use serde_json::Value;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_release_is_installed_upgraded_rolled_back_and_removed,
        a_release_that_does_not_become_ready_fails,
    );
}

/// A chart with a Deployment that has the value `colour` in its environment.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/it/manifests/trivial");

async fn a_release_is_installed_upgraded_rolled_back_and_removed(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = clusters.namespace("helm").await?;

    let notes = helm(&namespace, "install trivial CHART --wait --timeout=90s")?;
    ensure!(notes.contains("STATUS: deployed"), "{notes}");
    ensure!(notes.contains("trivial is red"), "{notes}");
    let state = deployed(&namespace).await?;
    ensure!(state == "red 1", "{state}");

    let upgrade = "upgrade trivial CHART --wait --timeout=90s --set=colour=blue";
    helm(&namespace, upgrade)?;
    let release = list(&namespace)?;
    let release = &release[0];
    ensure!(release["revision"] == "2", "{release}");
    ensure!(release["status"] == "deployed", "{release}");
    ensure!(release["chart"] == "trivial-0.1.0", "{release}");
    let state = deployed(&namespace).await?;
    ensure!(state == "blue 1", "{state}");

    helm(&namespace, "rollback trivial 1 --wait --timeout=90s")?;
    let state = deployed(&namespace).await?;
    ensure!(state == "red 1", "{state}");

    helm(&namespace, "uninstall trivial --wait --timeout=90s")?;
    until(Deadline::after(SOON), "nothing to be left", async || {
        let kinds = "all,configmaps,secrets";
        let left = namespace.kubectl(&["get", kinds, "-o", "name"]).await?;
        // Every namespace has this ConfigMap. No other object may be left.
        ensure!(left == "configmap/kube-root-ca.crt\n", "{left}");
        Ok(())
    })
    .await?;
    let releases = list(&namespace)?;
    ensure!(releases.as_array().is_some_and(Vec::is_empty), "{releases}");
    Ok(())
}

async fn a_release_that_does_not_become_ready_fails(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("helm-failure").await?;

    let install = "install trivial CHART --wait --timeout=3s --set=image=localhost/none:none";
    let error = helm(&namespace, install)
        .err()
        .context("the release was installed")?;

    let error = format!("{error:#}");
    ensure!(error.contains("context deadline exceeded"), "{error}");
    let release = list(&namespace)?;
    ensure!(release[0]["status"] == "failed", "{release}");
    Ok(())
}

/// Runs `helm` with the arguments in `words`. The word `CHART` stands for the path of the chart.
fn helm(namespace: &Namespace, words: &str) -> Result<String> {
    let words = words
        .split(' ')
        .map(|word| if word == "CHART" { CHART } else { word });
    let output = namespace
        .cluster()
        .helm()
        .args(["--namespace", namespace.name()])
        .args(words)
        .output()
        .context("failed to start helm")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{stderr}");

    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns all releases, including failed ones.
fn list(namespace: &Namespace) -> Result<Value> {
    let releases = helm(namespace, "list --all --output=json")?;
    serde_json::from_str(&releases).with_context(|| format!("no JSON: {releases}"))
}

/// Returns the colour and the number of available pods of the Deployment.
async fn deployed(namespace: &Namespace) -> Result<String> {
    let path = "{.spec.template.spec.containers[0].env[0].value} {.status.availableReplicas}";
    namespace.get("deployment/trivial", path).await
}
