//! An edit of an object, and what becomes of it.

use crate::fixture::SOON;
use crate::foreign::Tenant;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use Fate::{Refused, Told};

/// What becomes of an edit.
pub(super) enum Fate {
    /// The API server refuses it, with these words.
    Refused(&'static str),
    /// The object says that it is wrong: reason and a part of the message.
    Told(&'static str, &'static str),
}

/// Edits the object that is called like the peer, and looks what becomes of it.
pub(super) async fn edit(tenant: &Tenant, kind: &str, patch: &Value, fate: &Fate) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    let text = patch.to_string();
    let edited = tenant
        .namespace()
        .kubectl(&["patch", &what, "--type=merge", "-p", &text])
        .await;
    match fate {
        Refused(words) => {
            let error = edited.err().with_context(|| format!("{patch} was taken"))?;
            ensure!(format!("{error:#}").contains(words), "{patch}: {error:#}");
            Ok(())
        }
        Told(reason, words) => {
            edited.with_context(|| format!("{patch} was refused"))?;
            told(tenant, kind, reason, words)
                .await
                .with_context(|| format!("after {patch}"))
        }
    }
}

pub(super) async fn told(tenant: &Tenant, kind: &str, reason: &str, words: &str) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    told_by(tenant.namespace(), &what, reason, words).await
}

/// Waits until an object has a condition that is false for this reason.
pub(super) async fn told_by(
    namespace: &Namespace,
    what: &str,
    reason: &str,
    words: &str,
) -> Result<()> {
    let wait = format!("{reason} of {what}");
    until(Deadline::after(SOON), &wait, async || {
        let conditions = conditions(namespace, what).await?;
        let said = conditions
            .values()
            .any(|it| it["status"] == "False" && it["reason"] == reason && has(it, words));
        ensure!(said, "{conditions:?}");
        Ok(())
    })
    .await
}

fn has(condition: &Value, words: &str) -> bool {
    condition["message"]
        .as_str()
        .is_some_and(|it| it.contains(words))
}

/// Waits until the gateway is ready again, in its present generation.
pub(super) async fn ready(tenant: &Tenant, kind: &str) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    let wait = format!("{what} to be ready again");
    let namespace = tenant.namespace();
    until(Deadline::after(SOON), &wait, async || {
        let generation = namespace.get(&what, "{.metadata.generation}").await?;
        let conditions = conditions(namespace, &what).await?;
        let ready = conditions.get("Ready").context("no condition Ready")?;
        ensure!(ready["status"] == "True", "{ready}");
        let observed = ready["observedGeneration"].to_string();
        ensure!(observed == generation, "{observed}, not {generation}");
        Ok(())
    })
    .await
}

async fn conditions(namespace: &Namespace, what: &str) -> Result<BTreeMap<String, Value>> {
    let text = namespace.kubectl(&["get", what, "-o", "json"]).await?;
    let object: Value = serde_json::from_str(&text)?;
    let conditions = object["status"]["conditions"].as_array();

    Ok(conditions
        .into_iter()
        .flatten()
        .map(|it| {
            (
                it["type"].as_str().unwrap_or_default().to_owned(),
                it.clone(),
            )
        })
        .collect())
}

/// Makes the whole spec what it was, without what an edit added.
pub(super) async fn replace(tenant: &Tenant, kind: &str, spec: &Value) -> Result<()> {
    let what = format!("{}/{}", kind.to_lowercase(), tenant.id());
    let operations = json!([{"op": "replace", "path": "/spec", "value": spec}]).to_string();
    tenant
        .namespace()
        .kubectl(&["patch", &what, "--type=json", "-p", &operations])
        .await
        .map(drop)
}
