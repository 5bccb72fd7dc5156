//! Tests of kinds that a VkOptionsTemplate names: the custom resource `widgets.example.com`.

use crate::authentication::site::Site;
use crate::fixture::{Deadline, Fixture, LIQO, SOON, Suite, serial, until};
use crate::liqoctl;
use crate::peering::Peering;
use crate::refusals::scene::Scene;
use crate::upstream::offloading::process::VirtualKubelet;
use crate::upstream::offloading::turin::{NAMESPACE, Turin};
use crate::upstream::rest::refusal;
use anyhow::{Context as _, Result, ensure};
use control_api::VkOptionsTemplate;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_custom_resource_is_reflected_as_both_clusters_permit,
        a_kind_that_one_consumer_is_granted_is_reflected_again_after_it_vanished,
    );
}

/// Namespace of the provider.
const REMOTE: &str = "shop-rome";

/// Time that covers the interval at which a refused kind is read again.
const MINUTES: Duration = Duration::from_secs(150);

const NAME: &str = "widgets.example.com";

async fn a_custom_resource_is_reflected_as_both_clusters_permit(_: &'static Fixture) -> Result<()> {
    let scene = offloaded().await?;
    let Peering { rome, milan } = &scene.peering;

    // As at a provider with upstream's roles.
    scene.rome.create(&widget("shop", "web", "blue")).await?;
    until_reported(&scene, "cluster milan refuses it: ").await?;
    scene.rome.create(&config_map("shop")).await?;
    scene
        .milan
        .until(("ConfigMap", REMOTE, "others"), |_| true)
        .await?;
    milan.apply(&rights("remote")).await?;
    until_granted(&scene, "blue").await?;

    is_reflected(&scene).await?;
    is_left_out_by_its_policy(&scene).await?;
    returns_with_its_kind(&scene).await?;

    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    let mut role = rights("remote");
    role["rules"] = json!([secrets]);
    role["metadata"]["name"] = "too-much".into();
    rome.apply(&role).await?;
    let info = liqoctl::run(rome, &["info"]).await?;
    ensure!(
        info.contains("too-much") && info.contains("secrets"),
        "{info}"
    );

    ensure!(
        scene
            .rome
            .delete("NamespaceOffloading", "shop", "offloading")
            .await?
    );
    until(
        Deadline::after(SOON),
        "the end of the namespace",
        async || {
            let left = scene.milan.get_opt("Namespace", "", REMOTE).await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        },
    )
    .await?;
    let present = scene.rome.get("Widget", "shop", "web").await?;
    ensure!(
        present["metadata"]["deletionTimestamp"].is_null(),
        "{present}"
    );

    Ok(())
}

/// The provider has the fields and not the status, and its status returns. Fields are put back, and those of others stay.
async fn is_reflected(scene: &Scene) -> Result<()> {
    let mut object = scene.milan.get("Widget", REMOTE, "web").await?;
    ensure!(
        object["spec"] == json!({"color": "blue", "parts": {}}),
        "{object}"
    );
    let labels = &object["metadata"]["labels"];
    ensure!(labels["offloading.liqo.io/origin"] == "rome", "{object}");

    object["status"] = json!({"ready": 3});
    scene.milan.update_part("status", &object).await?;
    scene
        .rome
        .until(("Widget", "shop", "web"), |it| {
            it["status"] == json!({"ready": 3})
        })
        .await?;

    let mut edited = scene.milan.get("Widget", REMOTE, "web").await?;
    edited["spec"]["color"] = "green".into();
    edited["spec"]["size"] = 10.into();
    scene.milan.update(&edited).await?;
    let present = until_color(scene, "blue").await?;
    ensure!(present["spec"]["size"] == 10, "{present}");

    Ok(())
}

async fn is_left_out_by_its_policy(scene: &Scene) -> Result<()> {
    let mut skipped = scene.rome.get("Widget", "shop", "web").await?;
    skipped["metadata"]["annotations"] = json!({"liqo.io/skip-reflection": "true"});
    scene.rome.update(&skipped).await?;
    until(Deadline::after(SOON), "its deletion", async || {
        let left = scene.milan.get_opt("Widget", REMOTE, "web").await?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
    .await?;
    let mut reflected = scene.rome.get("Widget", "shop", "web").await?;
    reflected["metadata"]["annotations"] = json!({});
    scene.rome.update(&reflected).await?;
    until_color(scene, "blue").await?;

    Ok(())
}

/// The provider deletes the CustomResourceDefinition, and creates it again.
async fn returns_with_its_kind(scene: &Scene) -> Result<()> {
    let milan = &scene.peering.milan;
    delete_definition(milan).await?;
    until_reported(scene, "(status 404)").await?;
    others_go_on(scene, "red").await?;

    milan.apply(&definition()).await?;
    until_granted(scene, "blue").await
}

/// The administrator of the provider binds a ClusterRole in the namespace of `rome`. This cluster deletes the
/// CustomResourceDefinition, and creates it again.
async fn a_kind_that_one_consumer_is_granted_is_reflected_again_after_it_vanished(
    _: &'static Fixture,
) -> Result<()> {
    let scene = offloaded().await?;
    let Peering { rome, milan } = &scene.peering;
    let turin = Turin::join(milan).await?;
    turin.map(&json!({"demo": NAMESPACE})).await?;
    let kubelet = turin.kubelet(NAMESPACE).await?;
    for namespace in [NAMESPACE, REMOTE] {
        scene
            .milan
            .create(&widget(namespace, "theirs", "blue"))
            .await?;
    }
    scene.rome.create(&widget("shop", "web", "blue")).await?;
    until_reported(&scene, "cluster milan refuses it: ").await?;

    let mut role = rights("remote");
    role["metadata"] = json!({"name": "widgets-of-one"});
    milan.apply(&role).await?;
    milan.apply(&binding("rome", "widgets-of-one")).await?;
    until_granted(&scene, "blue").await?;
    for namespace in [NAMESPACE, REMOTE] {
        let error = kubelet.rest.get("Widget", namespace, "theirs").await.err();
        let error = error.context("another consumer has the right")?;
        ensure!(refusal(&error) == Some(403), "{error:#}");
    }

    delete_definition(rome).await?;
    until_reported(&scene, "this cluster refuses it: ").await?;
    until(
        Deadline::after(SOON),
        "the deletion of the object",
        async || {
            let left = scene.milan.get_opt("Widget", REMOTE, "web").await?;
            ensure!(left.is_none(), "{left:?}");
            Ok(())
        },
    )
    .await?;
    others_go_on(&scene, "red").await?;

    rome.apply(&definition()).await?;
    until(Deadline::after(SOON), "the kind", async || {
        scene.rome.create(&widget("shop", "web", "green")).await
    })
    .await?;
    until_granted(&scene, "green").await?;
    scene.milan.get("Widget", REMOTE, "theirs").await?;

    Ok(())
}

/// Returns a RoleBinding of a consumer's group in its namespace.
fn binding(consumer: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": REMOTE},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": consumer}],
    })
}

/// A change of another kind is reflected.
async fn others_go_on(scene: &Scene, color: &str) -> Result<()> {
    let mut other = config_map("shop");
    other["data"]["color"] = color.into();
    scene.rome.apply(&other, "kubectl").await?;
    let is_it = |it: &Value| it["data"]["color"] == color;
    scene
        .milan
        .until(("ConfigMap", REMOTE, "others"), is_it)
        .await?;

    Ok(())
}

/// Peers the clusters with virtual kubelets that reflect the kind, and offloads the namespace. The provider does not grant it.
async fn offloaded() -> Result<Scene> {
    let peering = Scene::clusters().await?;
    for (group, resource) in [
        ("", "secrets"),
        ("apps", "deployments"),
        ("ipam.liqo.io", "ips"),
    ] {
        let error = select(&peering.rome, group, resource).await.err();
        let error = error.context("it is accepted")?.to_string();
        ensure!(error.contains(&format!("{resource}.{group}")), "{error}");
    }
    define(&peering).await?;
    peering.peer().await?;
    let kubelet = VirtualKubelet::start(&peering.rome).await?;

    Scene::offload(peering, kubelet).await
}

/// Defines the kind in both clusters, and selects it for the virtual kubelets that the consumer starts from now on.
pub(crate) async fn define(peering: &Peering) -> Result<()> {
    for site in [&peering.rome, &peering.milan] {
        site.apply(&definition()).await?;
    }
    peering.rome.apply(&rights("local")).await?;
    select(&peering.rome, "example.com", "widgets").await?;

    Ok(())
}

/// Selects one resource as the only other one that virtual kubelets reflect.
async fn select(rome: &Site, group: &str, resource: &str) -> kube::Result<VkOptionsTemplate> {
    let options: Api<VkOptionsTemplate> = Api::namespaced(rome.client.clone(), LIQO);
    let resource = json!({"group": group, "version": "v1", "resource": resource, "status": true});
    let patch = Patch::Merge(json!({"spec": {"reflectedResources": [resource]}}));
    let name = "virtual-kubelet-default";

    options.patch(name, &PatchParams::default(), &patch).await
}

/// Returns the rights that an administrator aggregates for one side.
pub(crate) fn rights(side: &str) -> Value {
    let label = format!("liqo.io/aggregate-to-virtual-kubelet-{side}");
    let verbs = ["get", "list", "watch", "create", "patch", "delete"];
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("widgets-{side}"), "labels": {label: "true"}},
        "rules": [{
            "apiGroups": ["example.com"],
            "resources": ["widgets", "widgets/status"],
            "verbs": verbs,
        }],
    })
}

fn definition() -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": any, "status": any},
                }},
            }],
        },
    })
}

async fn delete_definition(site: &Site) -> Result<()> {
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}");
    let request = http::Request::delete(path).body(Vec::new())?;
    site.client.request_text(request).await?;

    Ok(())
}

fn widget(namespace: &str, name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"color": color, "parts": {}},
    })
}

fn config_map(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "others", "namespace": namespace},
        "data": {"color": "blue"},
    })
}

async fn has_color(scene: &Scene, color: &str) -> Result<Value> {
    let present = scene.milan.get("Widget", REMOTE, "web").await?;
    ensure!(present["spec"]["color"] == color, "{present}");

    Ok(present)
}

/// Waits until the virtual kubelet has requested the refused kind once more, and has reflected the object.
async fn until_granted(scene: &Scene, color: &str) -> Result<()> {
    until(Deadline::after(MINUTES), "the kind", async || {
        has_color(scene, color).await
    })
    .await?;

    Ok(())
}

async fn until_color(scene: &Scene, color: &str) -> Result<Value> {
    until(Deadline::after(SOON), color, async || {
        has_color(scene, color).await
    })
    .await
}

/// Waits for the Event about the kind.
async fn until_reported(scene: &Scene, cause: &str) -> Result<()> {
    until(Deadline::after(SOON), cause, async || {
        let events = scene.events("offloading").await?;
        let is_it = |it: &Value| {
            let message = it["message"].as_str().unwrap_or_default();
            it["reason"] == "FailedReflection" && message.contains(NAME) && message.contains(cause)
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await
}
