//! Tests of changes to the history of etcd, and of failures of the API server. Each of them ends
//! watches of other tests.

use crate::fixture::{Deadline, Fixture, SOON, Suite, code, create, serial, until};
use anyhow::{Context as _, Result, bail, ensure};
use futures_util::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, ObjectList, WatchEvent, WatchParams};
use kubernetes_lab::control_plane::Component;
use serde_json::json;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn add(suite: &mut Suite) {
    serial!(
        suite,
        a_watch_and_a_list_at_an_expired_resource_version_are_gone,
        a_watch_resumes_after_a_restart_of_the_api_server,
        a_restored_snapshot_has_lower_resource_versions,
        a_paused_api_server_does_not_respond,
    );
}

async fn a_watch_and_a_list_at_an_expired_resource_version_are_gone(
    fixture: &'static Fixture,
) -> Result<()> {
    let api = fixture.config_maps("expired").await?;
    let version = create(&api, &json!({"name": "old"})).await?.metadata;
    let version = version.resource_version.context("no resourceVersion")?;
    create(&api, &json!({"name": "new"})).await?;
    let first = api.list(&ListParams::default().limit(1)).await?;
    let token = first.metadata.continue_.context("no further page")?;
    let page = ListParams::default().limit(1).continue_token(&token);
    create(&api, &json!({"name": "newer"})).await?;

    let before = next(&api, &version).await?;
    api.list(&page).await.context("the token is not expired")?;
    fixture.control_plane.expire_resource_versions().await?;
    let after = next(&api, &version).await?;

    ensure!(matches!(before, WatchEvent::Added(_)), "{before:?}");
    ensure!(
        matches!(&after, WatchEvent::Error(status) if status.code == 410),
        "{after:?}"
    );
    ensure!(code(api.list(&page).await)? == 410, "another code");
    Ok(())
}

async fn a_watch_resumes_after_a_restart_of_the_api_server(
    fixture: &'static Fixture,
) -> Result<()> {
    let api = fixture.config_maps("restart").await?;
    create(&api, &json!({"name": "before"})).await?;
    fixture.control_plane.restart_api_server().await?;
    let list = api.list(&ListParams::default()).await?;

    create(&api, &json!({"name": "after"})).await?;

    ensure!(names(&list).contains(&"before"), "{list:?}");
    let version = list.metadata.resource_version.context("no version")?;
    let event = next(&api, &version).await?;
    ensure!(matches!(event, WatchEvent::Added(_)), "{event:?}");
    Ok(())
}

async fn a_restored_snapshot_has_lower_resource_versions(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("snapshot").await?;
    create(&api, &json!({"name": "kept"})).await?;
    let snapshot = fixture.control_plane.snapshot()?;
    for number in 0..20 {
        create(&api, &json!({"name": format!("lost-{number}")})).await?;
    }
    let before = fixture.control_plane.revision()?;

    fixture.control_plane.restore(&snapshot).await?;

    let restored = api.list(&ListParams::default()).await?;
    let names = names(&restored);
    ensure!(names.contains(&"kept"), "{names:?}");
    ensure!(!names.iter().any(|it| it.starts_with("lost")), "{names:?}");
    let version = restored.metadata.resource_version.context("no version")?;
    ensure!(version.parse::<u64>()? < before, "{version}, {before}");
    Ok(())
}

async fn a_paused_api_server_does_not_respond(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("paused").await?;
    fixture
        .control_plane
        .pause_component(Component::ApiServer)?;
    let paused = timeout(Duration::from_millis(500), api.get_opt("object")).await;
    fixture
        .control_plane
        .resume_component(Component::ApiServer)?;

    ensure!(paused.is_err(), "{paused:?}");
    until(Deadline::after(SOON), "a response", async || {
        api.get_opt("object").await?;
        Ok(())
    })
    .await
}

fn names(list: &ObjectList<ConfigMap>) -> Vec<&str> {
    let items = list.items.iter();
    items.filter_map(|it| it.metadata.name.as_deref()).collect()
}

/// Returns the first event of a new watch.
async fn next(api: &Api<ConfigMap>, version: &str) -> Result<WatchEvent<ConfigMap>> {
    let mut events = pin!(api.watch(&WatchParams::default(), version).await?);
    match timeout(SOON, events.try_next()).await {
        Ok(Ok(Some(event))) => Ok(event),
        Ok(Ok(None)) => bail!("the watch ended"),
        Ok(Err(kube::Error::Api(status))) => Ok(WatchEvent::Error(status)),
        Ok(Err(error)) => Err(error).context("the watch failed"),
        Err(_) => bail!("the watch has no event"),
    }
}
