//! Tests of pods and namespaces that cannot be offloaded: the consumer's objects show why, and others are untouched.

mod access;
mod addresses;
pub(crate) mod scene;

use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::namespaces::{offload, until_phase};
use crate::upstream::offloading::process::{VirtualKubelet, provider};
use addresses::without_networking_no_pod_has_an_address_that_is_in_use_here;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::pki::Subject;
use scene::Scene;
use serde_json::{Value, json};
use std::fs;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        pods_that_a_provider_refuses_say_why_until_they_run,
        pods_and_namespaces_that_cannot_be_offloaded_say_why,
        a_kubeconfig_that_is_missing_or_of_another_cluster_is_named,
        without_networking_no_pod_has_an_address_that_is_in_use_here,
    );
}

const FAILED_CREATE: &str = "FailedCreatePod";
const FAILED_REFLECTION: &str = "FailedReflection";

async fn pods_that_a_provider_refuses_say_why_until_they_run(_: &'static Fixture) -> Result<()> {
    let scene = Scene::start().await?;
    let none = json!([]);
    scene.create("first", "15", &none).await?;
    scene.run("first").await?;
    scene.create("second", "10", &none).await?;
    let exceeded = "exceeded quota: cpu, requested 10, used 15, limited 20, available 5";
    scene
        .until_refused("second", FAILED_CREATE, exceeded)
        .await?;

    // The TenantPolicy is that of absence: `baseline`.
    let volumes = json!([{"name": "root", "hostPath": {"path": "/"}}]);
    scene.create("host", "1", &volumes).await?;
    scene
        .until_refused("host", FAILED_CREATE, "spec.pod.volumes[root].hostPath")
        .await?;

    // Another pod ends.
    ensure!(scene.rome.delete("Pod", "shop", "first").await?);
    scene.end("first").await?;
    scene.run("second").await?;

    // The slice grows.
    scene.create("third", "15", &none).await?;
    let exceeded = "exceeded quota: cpu, requested 15, used 10, limited 20, available 10";
    scene
        .until_refused("third", FAILED_CREATE, exceeded)
        .await?;
    scene.resize("30").await?;
    scene.run("third").await?;

    // The slice shrinks below the pods that run.
    let before = scene.remote_pods().await?;
    scene.resize("5").await?;
    scene.create("fourth", "1", &none).await?;
    let exceeded = "exceeded quota: cpu, requested 1, used 25, limited 5, available 0";
    scene
        .until_refused("fourth", FAILED_CREATE, exceeded)
        .await?;
    let after = scene.remote_pods().await?;
    ensure!(before == after, "{before:?} {after:?}");

    let warnings = scene.warnings("first").await?;
    ensure!(warnings.is_empty(), "{warnings:?}");
    let warnings = scene.warnings("second").await?;
    ensure!(warnings.len() == 1, "{warnings:?}");
    let component = &warnings[0]["source"]["component"];
    ensure!(
        *component == "liqo-controller-manager (remote)",
        "{component}"
    );
    Ok(())
}

async fn pods_and_namespaces_that_cannot_be_offloaded_say_why(_: &'static Fixture) -> Result<()> {
    let scene = Scene::start().await?;
    let none = json!([]);
    scene.create("untouched", "1", &none).await?;
    scene.run("untouched").await?;
    let before = scene.remote_pods().await?;

    let volumes = json!([{"name": "share", "nfs": {"server": "192.0.2.1", "path": "/"}}]);
    scene.create("share", "1", &volumes).await?;
    scene
        .until_refused("share", FAILED_CREATE, "spec.pod.volumes[share]")
        .await?;
    scene.create("absurd", "999999999999", &none).await?;
    scene
        .until_refused(
            "absurd",
            FAILED_CREATE,
            "exceeded quota: cpu, requested 999999999999",
        )
        .await?;
    // JSON escapes each of these characters, and the consumer's etcd has them as one byte.
    scene
        .create_with_text("large", &"\"".repeat(900_000))
        .await?;
    scene
        .until_refused("large", FAILED_REFLECTION, "too large")
        .await?;

    names_and_selectors(&scene).await?;
    access::others_are_refused(&scene).await?;

    let after = scene.remote_pods().await?;
    ensure!(before == after, "{before:?} {after:?}");
    let warnings = scene.warnings("untouched").await?;
    ensure!(warnings.is_empty(), "{warnings:?}");
    scene.create("later", "1", &none).await?;
    scene.run("later").await
}

/// A namespace of the provider has the remote name, and no cluster has the selected label.
async fn names_and_selectors(scene: &Scene) -> Result<()> {
    let (rome, milan) = (&scene.peering.rome, &scene.peering.milan);
    let taken =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "books-rome"}});
    milan.apply(&taken).await?;
    offload(rome, "books", &json!({})).await?;
    let failed = until_phase(rome, "books", "AllFailed").await?;
    let conditions = failed["status"]["remoteNamespacesConditions"]["milan"].to_string();
    ensure!(
        conditions.contains("CreationLoopBackOff") && conditions.contains("its name may be taken"),
        "{conditions}"
    );
    let namespace = milan.tenant_namespace();
    until(Deadline::after(SOON), "the refused name", async || {
        let events = scene.milan.list("Event", &namespace, "").await?;
        let is_it = |it: &Value| {
            let message = it["message"].as_str().unwrap_or_default();
            message.contains("namespace `books-rome` exists and is not of this consumer")
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await?;
    waits_for_its_namespace(scene).await?;
    let own = scene.milan.get("Namespace", "", "books-rome").await?;
    ensure!(
        own["metadata"]["labels"]["liqo.io/remote-cluster-id"].is_null(),
        "{own}"
    );

    let region = json!({"key": "region", "operator": "In", "values": ["A"]});
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [region]}]});
    offload(rome, "music", &json!({"clusterSelector": selector})).await?;
    let unselected = until_phase(rome, "music", "NoClusterSelected").await?;
    let conditions = unselected["status"]["remoteNamespacesConditions"]["milan"].to_string();
    ensure!(conditions.contains("ClusterNotSelected"), "{conditions}");
    until_phase(rome, "shop", "Ready").await?;

    Ok(())
}

/// A pod of the namespace whose remote name is taken says why it waits.
async fn waits_for_its_namespace(scene: &Scene) -> Result<()> {
    let cause = "the provider does not create the namespace books-rome: its name may be taken";
    let mut pod = scene::pod("waits", "1", &json!([]));
    pod["metadata"]["namespace"] = json!("books");
    // The namespace gets its ServiceAccount a moment after it exists.
    until(Deadline::after(SOON), "the pod", async || {
        scene.rome.create(&pod).await
    })
    .await?;
    let contains = |text: &Value| text.as_str().is_some_and(|it| it.contains(cause));
    let is_waiting = |it: &Value| {
        it["status"]["reason"] == "OffloadingBackOff" && contains(&it["status"]["message"])
    };
    scene
        .rome
        .until(("Pod", "books", "waits"), is_waiting)
        .await?;
    until(Deadline::after(SOON), cause, async || {
        let events = scene.rome.list("Event", "books", "").await?;
        let is_it = |it: &Value| {
            it["involvedObject"]["name"] == "waits"
                && it["reason"] == FAILED_REFLECTION
                && contains(&it["message"])
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await
}

async fn a_kubeconfig_that_is_missing_or_of_another_cluster_is_named(
    _: &'static Fixture,
) -> Result<()> {
    let peering = Scene::peer().await?;
    let right = provider(&peering.rome).await?;
    let kubelet = VirtualKubelet::start_with(&peering.rome, None).await?;
    let scene = Scene::offload(peering, kubelet).await?;
    scene.create("web", "1", &json!([])).await?;
    let rome = &scene.peering.rome;
    let namespace = rome.tenant_namespace();
    until(Deadline::after(SOON), "the missing Secret", async || {
        let events = scene.rome.list("Event", &namespace, "").await?;
        let is_it = |it: &Value| {
            let message = it["message"].as_str().unwrap_or_default();
            it["involvedObject"]["kind"] == "VirtualNode"
                && it["reason"] == "InvalidKubeconfig"
                && message.contains("spec.kubeconfigSecretRef: failed to read")
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await?;
    scene
        .until_refused("web", FAILED_REFLECTION, "the cluster is not connected")
        .await?;

    // A user of the consumer's own cluster.
    let subject = Subject {
        user: "intern",
        group: None,
    };
    let control_plane = rome.control_plane();
    let other = control_plane.kubeconfig_as(subject, rome.server())?;
    scene.kubelet.connect(&fs::read(other)?)?;
    scene
        .until_refused(
            "web",
            FAILED_REFLECTION,
            "User \"intern\" cannot get resource",
        )
        .await?;

    scene.kubelet.connect(&right)?;
    scene.run("web").await.context("with the right kubeconfig")
}
