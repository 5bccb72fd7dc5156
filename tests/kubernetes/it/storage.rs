//! Tests of volumes of the default class, of projected volumes, and of mount propagation.

use crate::fixture::{Clusters, Suite, parallel};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::Api;
use kube::api::PostParams;
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::node::Node;
use kubernetes_lab::wait::{Deadline, SOON, until};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_volume_outlives_its_pod,
        a_deleted_claim_removes_its_directory,
        a_mount_is_propagated_to_another_container,
        a_projected_volume_contains_api_data,
        a_projected_token_is_valid_only_for_its_audience,
        a_changed_configmap_reaches_a_running_pod,
    );
}

/// A StatefulSet of two pods, each with its own volume.
const DISK: &str = include_str!("manifests/disk.yaml");

/// A pod with a projected volume.
const VOLUMES: &str = include_str!("manifests/volumes.yaml");

/// A pod with a container for each mode of mount propagation.
const PROPAGATION: &str = include_str!("manifests/propagation.yaml");

async fn a_volume_outlives_its_pod(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("volume").await?;
    namespace.apply(DISK).await?;
    namespace.rolled_out("statefulset/disk").await?;
    let pods = ["disk-0", "disk-1"];
    for pod in pods {
        // If the pods shared a volume, each pod would also read the line of the other pod.
        namespace
            .sh(pod, &format!("echo {pod} >>/data/owners"))
            .await?;
    }
    let uid = namespace.get("pod/disk-0", "{.metadata.uid}").await?;

    namespace.kubectl(&["delete", "pod", "disk-0"]).await?;
    until(Deadline::after(SOON), "another disk-0", async || {
        let new = namespace.get("pod/disk-0", "{.metadata.uid}").await?;
        ensure!(new != uid, "it is the same pod");
        Ok(())
    })
    .await?;
    namespace.rolled_out("statefulset/disk").await?;

    for pod in pods {
        let owners = namespace.sh(pod, "cat /data/owners").await?;
        ensure!(owners == format!("{pod}\n"), "{pod}: {owners}");
        let claim = format!("pvc/data-{pod}");
        let state = "{.status.phase} {.spec.storageClassName} {.status.capacity.storage}";
        let state = namespace.get(&claim, state).await?;
        ensure!(state == "Bound standard 10Mi", "{state}");
    }
    Ok(())
}

async fn a_deleted_claim_removes_its_directory(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("claim").await?;
    namespace.apply(DISK).await?;
    namespace.rolled_out("statefulset/disk").await?;
    namespace.sh("disk-0", "echo kept >/data/file").await?;
    let volume = namespace
        .get("pvc/data-disk-0", "{.spec.volumeName}")
        .await?;
    let directory = format!("pv/{volume}");
    let directory = namespace.get(&directory, "{.spec.hostPath.path}").await?;
    let node = namespace.get("pod/disk-0", "{.spec.nodeName}").await?;
    let node = Node::find(&node)?;
    let file = node.exec("cat", &[&format!("{directory}/file")])?;
    ensure!(file == "kept\n", "{file}");

    let delete = "delete statefulset/disk pvc/data-disk-0";
    let delete: Vec<_> = delete.split(' ').collect();
    namespace.kubectl(&delete).await?;

    until(
        Deadline::after(SOON),
        "volume and directory to be gone",
        async || {
            let volumes = namespace.kubectl(&["get", "pv", "-o", "name"]).await?;
            ensure!(!volumes.contains(&volume), "{volumes}");
            let listed = node.exec("ls", &[&directory]);
            let error = format!("{:#}", listed.err().context("the directory exists")?);
            ensure!(error.contains("No such file or directory"), "{error}");
            Ok(())
        },
    )
    .await?;
    // The claim of the second pod must not change.
    let other = namespace.get("pvc/data-disk-1", "{.status.phase}").await?;
    ensure!(other == "Bound", "{other}");
    Ok(())
}

async fn a_mount_is_propagated_to_another_container(clusters: &'static Clusters) -> Result<()> {
    let namespace = clusters.namespace("propagation").await?;
    namespace.apply(PROPAGATION).await?;
    namespace.wait("pod/propagation", "Ready").await?;
    let run = async |container: &str, script: &str| {
        let words = [
            "exec",
            "propagation",
            "-c",
            container,
            "--",
            "sh",
            "-c",
            script,
        ];
        namespace.kubectl(&words).await
    };

    let mount = "mkdir /shared/m && mount -t tmpfs none /shared/m && touch /shared/m/seen";
    run("maker", mount).await?;

    let seen = run("seer", "ls /shared/m").await?;
    ensure!(seen == "seen\n", "{seen}");
    let hidden = run("stranger", "ls /shared/m").await?;
    ensure!(hidden.is_empty(), "{hidden}");
    run("maker", "umount /shared/m").await?;
    let seen = run("seer", "ls /shared/m").await?;
    ensure!(seen.is_empty(), "{seen}");
    Ok(())
}

async fn a_projected_volume_contains_api_data(clusters: &'static Clusters) -> Result<()> {
    let namespace = reader(clusters, "projected").await?;

    let held = namespace
        .sh(
            "reader",
            "cd /all && tail -n +1 colour word role; echo; echo $WORD",
        )
        .await?;

    let expected = "==> colour <==\nred\n==> word <==\nsesame\n==> role <==\nreader\nsesame\n";
    ensure!(held == expected, "{held}");
    let written = namespace.sh("reader", "echo blue >/all/colour").await;
    ensure!(written.is_err(), "the volume is writable");
    Ok(())
}

async fn a_projected_token_is_valid_only_for_its_audience(
    clusters: &'static Clusters,
) -> Result<()> {
    let namespace = reader(clusters, "token").await?;

    let token = namespace.sh("reader", "cat /all/token").await?;
    let good = review(&namespace, &token, "liqo").await?;
    let other = review(&namespace, &token, "others").await?;

    ensure!(good.authenticated == Some(true), "{good:?}");
    ensure!(good.audiences == Some(vec!["liqo".to_owned()]), "{good:?}");
    let user = good.user.and_then(|user| user.username);
    let expected = "system:serviceaccount:token:default";
    ensure!(user.as_deref() == Some(expected), "{user:?}");
    ensure!(other.authenticated != Some(true), "{other:?}");
    Ok(())
}

/// Authenticates a token by a TokenReview.
async fn review(namespace: &Namespace, token: &str, audience: &str) -> Result<TokenReviewStatus> {
    let reviews: Api<TokenReview> = Api::all(namespace.client().clone());
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            audiences: Some(vec![audience.to_owned()]),
        },
        ..TokenReview::default()
    };
    let review = reviews.create(&PostParams::default(), &review).await?;
    review.status.context("no status")
}

async fn a_changed_configmap_reaches_a_running_pod(clusters: &'static Clusters) -> Result<()> {
    let namespace = reader(clusters, "changed-configmap").await?;
    let change = async |what: &str, fields: &str| {
        let words = ["patch", what, "--type=merge", "-p", fields];
        namespace.kubectl(&words).await
    };

    let blue = r#"{"data": {"colour": "blue"}}"#;
    change("configmap/settings", blue).await?;
    let word = r#"{"stringData": {"word": "shibboleth"}}"#;
    change("secret/keys", word).await?;

    let mut looks = 0;
    until(Deadline::after(SOON), "the new values", async || {
        // The kubelet updates the volumes of a pod once a minute, and when the pod changes. An
        // update may precede the arrival of the new objects at the kubelet, so the pod changes
        // repeatedly.
        looks += 1;
        let nudge = format!(r#"{{"metadata": {{"annotations": {{"looks": "{looks}"}}}}}}"#);
        change("pod/reader", &nudge).await?;
        let held = namespace.sh("reader", "cat /all/colour /all/word").await?;
        ensure!(held == "blueshibboleth", "{held}");
        Ok(())
    })
    .await?;
    Ok(())
}

/// Starts the pod `reader` with a projected volume in a new namespace.
async fn reader(clusters: &Clusters, name: &str) -> Result<Namespace> {
    let namespace = clusters.namespace(name).await?;
    namespace.apply(VOLUMES).await?;
    namespace.wait("pod/reader", "Ready").await?;
    Ok(namespace)
}
