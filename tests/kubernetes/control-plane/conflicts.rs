//! Tests of reflected objects that others change or own at the provider.

use crate::fixture::{Deadline, Fixture, SOON, Suite, serial, until};
use crate::liqoctl;
use crate::refusals::scene::Scene;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        other_owners_at_the_provider_keep_their_objects_and_fields
    );
}

/// Namespace of the provider.
const REMOTE: &str = "shop-rome";

/// Time that covers the interval at which a taken name is read.
const MINUTES: Duration = Duration::from_secs(150);

/// Time in which a change of the provider is put back.
const MOMENT: Duration = Duration::from_secs(10);

/// Edits within the time in which restorations count.
const EDITS_MAX: usize = 20;

async fn other_owners_at_the_provider_keep_their_objects_and_fields(
    _: &'static Fixture,
) -> Result<()> {
    let scene = Scene::start().await?;
    let taken = config_map(REMOTE, "taken", "theirs");
    let theirs = scene.milan.create(&taken).await?;
    scene
        .rome
        .create(&config_map("shop", "taken", "blue"))
        .await?;
    scene
        .rome
        .create(&config_map("shop", "web", "blue"))
        .await?;
    until_color(&scene, "web", "blue").await?;

    let cause =
        "ConfigMap shop-rome/taken of cluster milan already exists and is not a reflected object";
    until_event(&scene, "taken", "FailedReflection", cause).await?;
    let info = liqoctl::run(&scene.peering.rome, &["info"]).await?;
    ensure!(
        info.contains("ConfigMap shop/taken") && info.contains(cause),
        "{info}"
    );

    fields_of_others_stay(&scene).await?;
    a_contested_field_is_left_for_a_minute(&scene).await?;
    replicas_stay(&scene).await?;

    let present = scene.milan.get("ConfigMap", REMOTE, "taken").await?;
    ensure!(present == theirs, "{present}");
    scene.milan.delete("ConfigMap", REMOTE, "taken").await?;
    until(Deadline::after(MINUTES), "the free name", async || {
        color_is(&scene, "taken", "blue").await
    })
    .await?;

    Ok(())
}

/// A reflected field is put back, and fields that others add are left as they are, also by a change of this cluster.
async fn fields_of_others_stay(scene: &Scene) -> Result<()> {
    let mut edited = scene.milan.get("ConfigMap", REMOTE, "web").await?;
    edited["data"] = json!({"color": "green", "size": "10"});
    edited["metadata"]["labels"]["team"] = "theirs".into();
    scene.milan.update(&edited).await?;
    until_color(scene, "web", "blue").await?;

    let changed = config_map("shop", "web", "red");
    scene.rome.apply(&changed, "kubectl").await?;
    let present = until_color(scene, "web", "red").await?;
    ensure!(present["data"]["size"] == "10", "{present}");
    ensure!(
        present["metadata"]["labels"]["team"] == "theirs",
        "{present}"
    );
    let managers = present["metadata"]["managedFields"].as_array();
    let mut managers = managers.context("no field managers")?.iter();
    ensure!(
        managers.any(|it| it["manager"] == "reflection.liqo.io" && it["operation"] == "Apply"),
        "{present}"
    );

    Ok(())
}

/// Another client changes the field until the virtual kubelet does not put it back.
async fn a_contested_field_is_left_for_a_minute(scene: &Scene) -> Result<()> {
    scene
        .rome
        .create(&config_map("shop", "fight", "blue"))
        .await?;
    until_color(scene, "fight", "blue").await?;
    let mut edits = 0;
    loop {
        let edit = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "fight", "namespace": REMOTE},
            "data": {"color": "green"},
        });
        scene.milan.apply(&edit, "gitops").await?;
        edits += 1;
        ensure!(edits < EDITS_MAX, "it is put back again and again");
        let restored = until(Deadline::after(MOMENT), "its value", async || {
            color_is(scene, "fight", "blue").await
        });
        if restored.await.is_err() {
            break;
        }
    }
    ensure!(edits >= 4, "it was put back {} times", edits - 1);
    let cause = "the field manager gitops of cluster milan changes reflected fields of ConfigMap shop-rome/fight";
    until_event(scene, "fight", "FailedReflection", cause).await?;
    until_color(scene, "fight", "blue").await?;

    Ok(())
}

/// An object that is reflected from another cluster is not reflected on.
async fn replicas_stay(scene: &Scene) -> Result<()> {
    let mut replica = config_map("shop", "replica", "blue");
    replica["metadata"]["labels"] = json!({
        "offloading.liqo.io/origin": "turin",
        "offloading.liqo.io/destination": "rome",
    });
    scene.rome.create(&replica).await?;
    let cause = "it is reflected from another cluster";
    until_event(scene, "replica", "ReflectionDisabled", cause).await?;
    let found = scene.milan.get_opt("ConfigMap", REMOTE, "replica").await?;
    ensure!(found.is_none(), "{found:?}");

    Ok(())
}

fn config_map(namespace: &str, name: &str, color: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"color": color},
    })
}

async fn color_is(scene: &Scene, name: &str, color: &str) -> Result<Value> {
    let present = scene.milan.get("ConfigMap", REMOTE, name).await?;
    ensure!(present["data"]["color"] == color, "{present}");

    Ok(present)
}

async fn until_color(scene: &Scene, name: &str, color: &str) -> Result<Value> {
    until(Deadline::after(SOON), color, async || {
        color_is(scene, name, color).await
    })
    .await
}

/// Waits for an Event about a ConfigMap of the consumer.
async fn until_event(scene: &Scene, name: &str, reason: &str, cause: &str) -> Result<()> {
    until(Deadline::after(SOON), cause, async || {
        let events = scene.events(name).await?;
        let is_it = |it: &Value| {
            let message = it["message"].as_str().unwrap_or_default();
            it["reason"] == reason && message.contains(cause)
        };
        ensure!(events.iter().any(is_it), "{events:?}");
        Ok(())
    })
    .await
}
