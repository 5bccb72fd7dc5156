//! Tests of server-side apply.

use crate::fixture::{Fixture, Suite, code, create, parallel};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

pub(crate) fn add(suite: &mut Suite) {
    parallel!(
        suite,
        a_second_field_manager_conflicts_with_the_owner_of_a_field,
        an_apply_removes_a_field_of_an_update_entry_that_was_folded,
    );
}

async fn a_second_field_manager_conflicts_with_the_owner_of_a_field(
    fixture: &'static Fixture,
) -> Result<()> {
    let api = fixture.config_maps("ownership-conflict").await?;
    apply(&api, "first", &json!({"key": "a"})).await?;

    let conflict = apply(&api, "second", &json!({"key": "b"})).await;
    apply(&api, "second", &json!({"other": "b"})).await?;

    ensure!(code(conflict)? == 409, "no conflict");
    let stored = api.get("object").await?;
    let owner = |field: &str| {
        let entries = stored.metadata.managed_fields.iter().flatten();
        entries
            .filter(|it| owned(it).get(field).is_some())
            .filter_map(|it| it.manager.clone())
            .collect::<Vec<_>>()
    };
    ensure!(owner("f:key") == ["first"], "{stored:?}");
    ensure!(owner("f:other") == ["second"], "{stored:?}");
    Ok(())
}

/// An object that an earlier release wrote by Update has an Update entry of the same manager. An
/// Apply removes fields of its own Apply entry only, so the Update entry must become an Apply entry.
async fn an_apply_removes_a_field_of_an_update_entry_that_was_folded(
    fixture: &'static Fixture,
) -> Result<()> {
    let api = fixture.config_maps("ownership-fold").await?;
    let created = create(&api, &json!({"name": "object"})).await?;
    let mut entries = created.metadata.managed_fields.context("no owner")?;
    let manager = entries[0].manager.clone().context("no manager")?;

    apply(&api, &manager, &json!({"new": "a"})).await?;
    let kept = api.get("object").await?.data.unwrap_or_default();
    entries[0].operation = Some("Apply".to_owned());
    let fold = json!({"metadata": {"managedFields": entries}});
    api.patch("object", &PatchParams::default(), &Patch::Merge(&fold))
        .await?;
    apply(&api, &manager, &json!({"new": "a"})).await?;
    let removed = api.get("object").await?.data.unwrap_or_default();

    ensure!(kept.contains_key("key"), "{kept:?}");
    ensure!(!removed.contains_key("key"), "{removed:?}");
    Ok(())
}

async fn apply(api: &Api<ConfigMap>, manager: &str, data: &Value) -> kube::Result<ConfigMap> {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "object"}, "data": data,
    });
    let params = PatchParams::apply(manager);
    api.patch("object", &params, &Patch::Apply(&object)).await
}

/// Returns the fields of `data` in an entry of `managedFields`.
fn owned(entry: &ManagedFieldsEntry) -> &Value {
    entry
        .fields_v1
        .as_ref()
        .and_then(|fields| fields.0.get("f:data"))
        .unwrap_or(&Value::Null)
}
