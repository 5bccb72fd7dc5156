//! Tests of `liqoctl` with invalid flags, kubeconfigs and clusters.

use crate::fixture::{LIQO, Peering, Suite, install, liqoctl, parallel, serial};
use crate::{MILAN, ROME};
use anyhow::{Context as _, Result, ensure};
use kube::config::Kubeconfig;
use kubernetes_lab::cleanup;
use kubernetes_lab::cluster::Cluster;
use kubernetes_lab::namespace::Namespace;
use serde_json::{Value, json};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(super) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        an_unreachable_api_server_is_named,
        a_missing_permission_is_named,
        rejected_credentials_are_reported,
        a_wrong_pod_cidr_is_refused,
        the_id_of_a_cluster_does_not_change,
    );
    serial!(
        suite,
        two_clusters_with_one_id_are_refused,
        missing_crds_of_the_remote_cluster_are_reported,
    );
}

/// The time within which a command must report that an API server is unreachable.
const REPORTED: Duration = Duration::from_secs(25);

async fn an_unreachable_api_server_is_named(peering: &'static Peering) -> Result<()> {
    // No node has this address.
    let nowhere = "https://172.18.252.1:6443";
    let dead = File::kubeconfig("dead", &peering.milan, |kubeconfig| {
        kubeconfig["clusters"][0]["cluster"]["server"] = json!(nowhere);
    })?;

    for flag in ["--remote-kubeconfig", "--kubeconfig"] {
        let start = Instant::now();
        let flag = format!("{flag}={}", dead.path.display());
        let other = format!(
            "--remote-kubeconfig={}",
            peering.milan.kubeconfig().display()
        );
        let words = ["network", "connect", &flag, "--timeout=15s"];
        let words = match flag.starts_with("--remote") {
            true => words.to_vec(),
            false => [words.as_slice(), &[&other]].concat(),
        };
        let error = refusal(&peering.rome, &words)?;
        ensure!(error.contains(nowhere), "{error}");
        ensure!(error.contains("is unreachable"), "{error}");
        ensure!(start.elapsed() < REPORTED, "{:?}", start.elapsed());
    }
    Ok(())
}

async fn a_missing_permission_is_named(peering: &'static Peering) -> Result<()> {
    let namespace = Namespace::create(&peering.milan, "powerless").await?;
    namespace
        .kubectl(&["create", "serviceaccount", "guest"])
        .await?;
    let token = namespace.kubectl(&["create", "token", "guest"]).await?;
    let powerless = File::kubeconfig("powerless", &peering.milan, |kubeconfig| {
        kubeconfig["users"][0]["user"] = json!({"token": token.trim()});
    })?;

    let flag = format!("--remote-kubeconfig={}", powerless.path.display());
    let error = refusal(&peering.rome, &["network", "connect", &flag])?;
    ensure!(error.contains("the remote cluster"), "{error}");
    ensure!(
        error.contains("system:serviceaccount:powerless:guest"),
        "{error}"
    );
    ensure!(error.contains("request this right"), "{error}");

    let flag = format!("--kubeconfig={}", powerless.path.display());
    let words = ["install", &flag, "--pod-cidr=10.244.0.0/16", "--dry-run"];
    let error = refusal(&peering.milan, &words)?;
    ensure!(
        error.contains("cluster-admin") || error.contains("request this right"),
        "{error}"
    );
    Ok(())
}

async fn rejected_credentials_are_reported(peering: &'static Peering) -> Result<()> {
    let expired = File::kubeconfig("expired", &peering.milan, |kubeconfig| {
        kubeconfig["users"][0]["user"] = json!({"token": "nonsense"});
    })?;

    let flag = format!("--remote-kubeconfig={}", expired.path.display());
    let error = refusal(&peering.rome, &["network", "connect", &flag])?;

    ensure!(error.contains("the remote cluster"), "{error}");
    ensure!(error.contains("refused the credentials"), "{error}");
    Ok(())
}

async fn a_wrong_pod_cidr_is_refused(peering: &'static Peering) -> Result<()> {
    for (flag, cause) in [
        ("--pod-cidr=10.9.0.0/16", "is not within 10.9.0.0/16"),
        ("--pod-cidr=10.244.0.0/33", "10.244.0.0/33"),
    ] {
        let error = refusal(&peering.rome, &["install", flag, "--dry-run"])?;
        ensure!(error.contains(cause), "{error}");
        ensure!(error.contains("--pod-cidr"), "{error}");
    }
    Ok(())
}

async fn the_id_of_a_cluster_does_not_change(peering: &'static Peering) -> Result<()> {
    let id = format!("--cluster-id={MILAN}");
    let words = ["install", &id, "--pod-cidr=10.244.0.0/16", "--dry-run"];

    let error = refusal(&peering.rome, &words)?;

    ensure!(error.contains(ROME), "{error}");
    Ok(())
}

/// A ConfigMap in another namespace of milan has the cluster id of rome.
async fn two_clusters_with_one_id_are_refused(peering: &'static Peering) -> Result<()> {
    let namespace = Namespace::create(&peering.milan, "same-id").await?;
    let second = namespace.clone();
    cleanup::defer("second cluster id", async move || {
        let words = ["delete", "configmap", "--all"];
        second.kubectl(&words).await.map(drop)
    });
    namespace
        .apply(&format!(
            "apiVersion: v1
kind: ConfigMap
metadata:
  name: liqo-clusterid-configmap
  labels: {{app.kubernetes.io/name: clusterid-configmap}}
data: {{CLUSTER_ID: {ROME}}}
"
        ))
        .await?;

    let milan = format!(
        "--remote-kubeconfig={}",
        peering.milan.kubeconfig().display()
    );
    let words = [
        "network",
        "connect",
        &milan,
        "--remote-liqo-namespace=same-id",
    ];
    let error = refusal(&peering.rome, &words)?;
    ensure!(
        error.contains(&format!("both clusters have the cluster ID {ROME}")),
        "{error}"
    );
    ensure!(error.contains("--cluster-id"), "{error}");
    // With two cluster ids in one cluster, `liqoctl` needs the namespace as a flag.
    let error = refusal(&peering.rome, &words[..3])?;
    ensure!(error.contains("same-id") && error.contains(LIQO), "{error}");
    Ok(())
}

async fn missing_crds_of_the_remote_cluster_are_reported(peering: &'static Peering) -> Result<()> {
    let before = super::restarts(peering).await?;
    let crd = "gatewayservers.networking.liqo.io";
    let cluster = Namespace::existing(&peering.milan, LIQO).await?;
    cluster.kubectl(&["delete", "crd", crd]).await?;

    let milan = format!(
        "--remote-kubeconfig={}",
        peering.milan.kubeconfig().display()
    );
    let error = refusal(&peering.rome, &["network", "connect", &milan])?;
    ensure!(error.contains("the remote cluster"), "{error}");
    ensure!(error.contains("CRDs are missing"), "{error}");
    ensure!(error.contains("liqoctl install"), "{error}");
    // The installation restores the deleted CRD. `connect` restores the objects that were deleted
    // with the CRD.
    install(&peering.milan)?;
    peering.connect()?;
    let after = super::restarts(peering).await?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(())
}

/// Runs `liqoctl`, which must fail, and returns its error.
pub(super) fn refusal(cluster: &Cluster, words: &[&str]) -> Result<String> {
    let refused = liqoctl(cluster, words).err();
    let error = refused.with_context(|| format!("`liqoctl {}` succeeded", words.join(" ")))?;
    let error = format!("{error:#}");
    ensure!(!error.contains("panicked"), "{error}");

    Ok(error)
}

/// A temporary file, which dropping the value removes.
struct File {
    path: PathBuf,
}

impl File {
    /// Writes a copy of a cluster's kubeconfig, which `edit` has changed.
    fn kubeconfig(name: &str, cluster: &Cluster, edit: impl FnOnce(&mut Value)) -> Result<Self> {
        let file = Kubeconfig::read_from(cluster.kubeconfig())?;
        let mut value = serde_json::to_value(&file)?;
        edit(&mut value);
        let name = format!("liqo-lab-{name}-{}", std::process::id());
        let path = env::temp_dir().join(name);
        // Every JSON document is also a YAML document.
        fs::write(&path, value.to_string())?;

        Ok(Self { path })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
