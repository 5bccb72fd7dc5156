//! Tests of the end of objects: finalizers and garbage collection.

use crate::fixture::{Deadline, Fixture, SOON, Suite, create, parallel, until};
use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_finalizer_holds_a_deletion,
        an_object_is_collected_after_its_owner,
    );
}

async fn a_finalizer_holds_a_deletion(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("finalizer").await?;
    let metadata = json!({"name": "held", "finalizers": ["test.liqo.io/hold"]});
    create(&api, &metadata).await?;

    api.delete("held", &DeleteParams::default()).await?;
    let held = api.get("held").await?;
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    api.patch("held", &PatchParams::default(), &patch).await?;

    ensure!(held.metadata.deletion_timestamp.is_some(), "{held:?}");
    ensure!(api.get_opt("held").await?.is_none(), "it exists");
    Ok(())
}

async fn an_object_is_collected_after_its_owner(fixture: &'static Fixture) -> Result<()> {
    let api = fixture.config_maps("garbage").await?;
    let owner = create(&api, &json!({"name": "owner"})).await?;
    let uid = owner.metadata.uid.context("no uid")?;
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
    create(
        &api,
        &json!({"name": "owned", "ownerReferences": [reference]}),
    )
    .await?;
    create(&api, &json!({"name": "free"})).await?;

    api.delete("owner", &DeleteParams::background()).await?;

    until(Deadline::after(SOON), "the collection", async || {
        let owned = api.get_opt("owned").await?;
        ensure!(owned.is_none(), "it exists");
        Ok(())
    })
    .await?;
    api.get("free").await.context("it has no owner")?;
    Ok(())
}
