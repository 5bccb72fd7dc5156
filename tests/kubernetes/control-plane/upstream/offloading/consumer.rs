//! Upstream's virtual kubelet as the consumer of a provider with the manager of this project.

use super::endpoints;
use super::golden::Golden;
use super::kubelet::{Kubelet, with_processors};
use super::node::Node;
use super::reflected;
use super::requests::{of, writes};
use super::turin::{NAMESPACE, Turin, provider};
use crate::authentication::site::{MANAGER, Site};
use crate::fixture::{Deadline, Fixture, SOON, until};
use crate::upstream::golden::differences_of;
use crate::upstream::rest::{Rest, refusal};
use crate::upstream::until_gone;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use serde_json::{Value, json};

const GOLDEN: Golden = Golden::TURIN;

/// The consumer `turin` has no cluster: the test writes what its controllers and its virtual kubelet write.
pub(super) async fn upstreams_virtual_kubelet_runs_pods_at_a_provider(
    _: &'static Fixture,
) -> Result<()> {
    let milan = provider().await?;
    let turin = Turin::join(&milan).await?;
    turin.map(&json!({"demo": NAMESPACE})).await?;
    is_prepared(&turin.administrator).await?;

    let mut kubelet = turin.kubelet(NAMESPACE).await?;
    kubelet.reflect().await?;
    may_read_metrics(&kubelet.rest).await?;
    runs(&milan, &mut kubelet).await?;
    endpoints::check(&milan, &kubelet).await?;
    reflected::check(&milan, &mut kubelet).await?;
    fits(&turin, &mut kubelet).await?;

    withdraws(&turin, &kubelet).await
}

/// The namespace and the RoleBinding are upstream's, but for the labels with the profile of Pod Security and the TenantPolicy.
async fn is_prepared(rest: &Rest) -> Result<()> {
    let map = "liqo-tenant-turin/milan";
    let namespace = json!({
        "labels": {
            "kubernetes.io/metadata.name": NAMESPACE,
            "liqo.io/remote-cluster-id": "turin",
            "liqo.io/tenant-policy": "turin",
            "pod-security.kubernetes.io/enforce": "baseline",
        },
        "annotations": {"liqo.io/managed-by-namespace-map": map, "liqo.io/original-name": "demo"},
        "name": NAMESPACE,
    });
    let found = rest.get("Namespace", "", NAMESPACE).await?;
    let differences = differences_of(&found["metadata"], &namespace);
    ensure!(differences.is_empty(), "{differences:#?}");

    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {
            "name": "liqo-tenant-turin",
            "namespace": NAMESPACE,
            "labels": {
                "app.kubernetes.io/managed-by": "liqo",
                "liqo.io/managed": "true",
                "liqo.io/remote-cluster-id": "turin",
            },
            "annotations": {"liqo.io/managed-by-namespace-map": map},
        },
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "liqo-virtual-kubelet-remote"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "turin"}],
    });
    let found = rest
        .get("RoleBinding", NAMESPACE, "liqo-tenant-turin")
        .await?;
    let differences = differences_of(&found, &binding);
    ensure!(differences.is_empty(), "{differences:#?}");

    Ok(())
}

/// The paths of metrics are permitted, although no server of them runs here; other paths are not.
async fn may_read_metrics(rest: &Rest) -> Result<()> {
    let scrape = "/apis/metrics.liqo.io/v1beta1/scrape/turin";
    for (path, code) in [
        (format!("{scrape}/metrics"), 404),
        (format!("{scrape}/metrics/cadvisor"), 404),
        (format!("{scrape}/metrics/resource"), 404),
        (
            format!("/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods"),
            404,
        ),
        (format!("{scrape}/other"), 403),
        (
            "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods".to_owned(),
            403,
        ),
    ] {
        let answer = rest.read(&path).await.err().map(anyhow::Error::from);
        let answer = answer.with_context(|| format!("{path} is served"))?;
        ensure!(refusal(&answer) == Some(code), "{path}: {answer:#}");
    }

    Ok(())
}

/// A ShadowPod is written ten times while its pod starts. The pod is created once, follows labels and annotations, and is created
/// again after an eviction.
async fn runs(milan: &Site, kubelet: &mut Kubelet) -> Result<()> {
    let golden = GOLDEN.shadow()?;
    let stored = kubelet.create(&golden).await?;
    let differences = differences_of(&without_times(&stored)?, &golden);
    ensure!(differences.is_empty(), "{differences:#?}");
    let pod = kubelet
        .until("Pod", "web", |it| is_named(it, "web"))
        .await?;
    let node = Node::add(milan, "milan-cp", NAMESPACE).await?;
    node.bind("web", "milan-cp").await?;
    let bound = kubelet
        .until("Pod", "bound", |it| it["spec"]["nodeName"].is_string())
        .await?;
    is_upstreams(&bound, &stored)?;

    for status in GOLDEN.remote_statuses()? {
        node.report("web", &status).await?;
        let seen = |it: &Value| it["status"] == status;
        kubelet.until("Pod", "its status", seen).await?;
        for _ in 0..2 {
            ensure!(!kubelet.update(&golden).await?, "it was changed");
        }
    }
    let is_running = |it: &Value| it["status"]["phase"] == "Running";
    kubelet.until("ShadowPod", "its phase", is_running).await?;
    let mut changed = golden.clone();
    changed["metadata"]["labels"]["tier"] = json!("front");
    changed["metadata"]["annotations"]["example.com/note"] = json!("changed");
    ensure!(kubelet.update(&changed).await?, "it was not changed");
    ensure!(!kubelet.update(&changed).await?, "it was changed");
    let follows = |it: &Value| {
        let metadata = &it["metadata"];
        metadata["labels"]["tier"] == "front"
            && metadata["annotations"]["example.com/note"] == "changed"
    };
    let changed = kubelet.until("Pod", "the change", follows).await?;
    for field in ["uid", "generation"] {
        let fields = [&pod, &changed].map(|it| &it["metadata"][field]);
        ensure!(fields[0] == fields[1], "{fields:?}");
    }
    evicted(milan, kubelet, &node).await
}

async fn evicted(milan: &Site, kubelet: &mut Kubelet, node: &Node<'_>) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(milan.client.clone(), NAMESPACE);
    let old = pods.get("web").await?.metadata.uid;
    pods.evict("web", &EvictParams::default()).await?;
    let mut failed = GOLDEN.remote_statuses()?[3].clone();
    failed["phase"] = json!("Failed");
    node.end("web", &failed).await?;
    let is_new =
        |it: &Value| is_named(it, "web") && it["metadata"]["uid"].as_str() != old.as_deref();
    kubelet.until("Pod", "another one", is_new).await?;

    let expected = ["create pods web", "patch pods web", "create pods web"];
    until(Deadline::after(SOON), "the requests", async || {
        let writes = writes(milan, MANAGER)?;
        let of_pods = of(&writes, &["pods", "pods/status"]);
        ensure!(of_pods == expected, "{of_pods:?}");
        // Pending, Running, and Pending again.
        let phases = of(&writes, &["shadowpods", "shadowpods/status"]);
        ensure!(phases == ["patch shadowpods/status web"; 3], "{phases:?}");
        Ok(())
    })
    .await
}

/// A ShadowPod that exceeds the Quota waits until another one is deleted.
async fn fits(turin: &Turin, kubelet: &mut Kubelet) -> Result<()> {
    let big = with_processors(&GOLDEN.shadow()?, "big", "20");
    kubelet.create(&big).await?;
    let is_excess = |it: &Value| {
        let message = it["message"].as_str().unwrap_or_default();
        it["reason"] == "FailedCreatePod" && is_about(it, "big") && message.contains("cpu")
    };
    kubelet.until("Event", "the excess", is_excess).await?;
    let shadow = kubelet.rest.get("ShadowPod", NAMESPACE, "web").await?;
    kubelet.rest.delete_object(&shadow).await?;
    kubelet
        .until("Pod", "big", |it| is_named(it, "big"))
        .await?;
    let is_created = |it: &Value| it["reason"] == "CreatedPod" && is_about(it, "big");
    kubelet.until("Event", "the creation", is_created).await?;
    until_gone(&turin.administrator, "Pod", NAMESPACE, "tier=front").await
}

/// A namespace that is no longer mapped ends, and what its pods requested is free again.
async fn withdraws(turin: &Turin, kubelet: &Kubelet) -> Result<()> {
    turin.map(&json!({"shop": "shop-turin"})).await?;
    let left = turin
        .administrator
        .get_opt("Namespace", "", NAMESPACE)
        .await?;
    ensure!(left.is_none(), "{left:?}");
    let error = kubelet.rest.list("ShadowPod", NAMESPACE, "").await.err();
    let error = error.context("the rights are left")?;
    ensure!(refusal(&error) == Some(403), "{error:#}");

    let mut kubelet = turin.kubelet("shop-turin").await?;
    let mut big = with_processors(&GOLDEN.shadow()?, "big", "20");
    big["metadata"]["namespace"] = json!("shop-turin");
    kubelet.create(&big).await?;
    kubelet
        .until("Pod", "big", |it| is_named(it, "big"))
        .await?;

    Ok(())
}

/// Asserts that the pod of a ShadowPod is as at upstream's provider.
///
/// Exceptions: the annotation about changes is an addition of this project, and that of `kubectl apply` is not copied.
fn is_upstreams(pod: &Value, shadow: &Value) -> Result<()> {
    let mut expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": NAMESPACE,
            "labels": shadow["metadata"]["labels"],
            "annotations": {"liqo.io/applies-changes": "true"},
            "ownerReferences": [{
                "apiVersion": "offloading.liqo.io/v1beta1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "ShadowPod",
                "name": "web",
            }],
        },
        "spec": shadow["spec"]["pod"],
    });
    expected["metadata"]["labels"]["liqo.io/managed-by"] = json!("shadowpod");
    // The API server's defaults, and the scheduler's decision.
    for (field, value) in [
        ("nodeName", json!("milan-cp")),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccount", json!("default")),
        ("serviceAccountName", json!("default")),
    ] {
        expected["spec"][field] = value;
    }
    let mut found = pod.clone();
    found.as_object_mut().context("no pod")?.remove("status");
    let differences = differences_of(&found, &expected);
    ensure!(differences.is_empty(), "{differences:#?}");
    let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
    ensure!(*owner == shadow["metadata"]["uid"], "{owner}");

    Ok(())
}

/// Returns a ShadowPod as it was created.
fn without_times(stored: &Value) -> Result<Value> {
    let mut stored = stored.clone();
    stored
        .as_object_mut()
        .context("no object")?
        .remove("status");

    Ok(stored)
}

fn is_named(object: &Value, name: &str) -> bool {
    object["metadata"]["name"] == name && object["metadata"]["deletionTimestamp"].is_null()
}

fn is_about(event: &Value, shadow: &str) -> bool {
    event["involvedObject"]["kind"] == "ShadowPod" && event["involvedObject"]["name"] == shadow
}
