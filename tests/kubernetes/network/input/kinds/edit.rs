//! Invalid edits of objects, and their expected outcomes.

use crate::fixture::SOON;
use crate::foreign::Tenant;
use anyhow::{Context as _, Result, ensure};
use kubernetes_lab::namespace::Namespace;
use kubernetes_lab::wait::{Deadline, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use Expected::{Refused, Reported};

/// The expected outcome of an invalid edit.
pub(super) enum Expected {
    /// The API server rejects the edit with an error that contains this text.
    Refused(&'static str),
    /// A condition of the object is `False`, with this reason and a message that contains this
    /// text.
    Reported(&'static str, &'static str),
}

/// Edits the object of kind `kind` whose name is the peer's cluster id, and asserts the outcome.
pub(super) async fn edit(
    tenant: &Tenant,
    kind: &str,
    patch: &Value,
    expected: &Expected,
) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    let patched = patch.to_string();
    let edited = tenant
        .namespace()
        .kubectl(&["patch", &what, "--type=merge", "-p", &patched])
        .await;
    match expected {
        Refused(text) => {
            let error = edited
                .err()
                .with_context(|| format!("{patch} was accepted"))?;
            ensure!(format!("{error:#}").contains(text), "{patch}: {error:#}");
            Ok(())
        }
        Reported(reason, text) => {
            edited.with_context(|| format!("{patch} was refused"))?;
            reported(tenant, kind, reason, text)
                .await
                .with_context(|| format!("after {patch}"))
        }
    }
}

pub(super) async fn reported(tenant: &Tenant, kind: &str, reason: &str, text: &str) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    reported_by(tenant.namespace(), &what, reason, text).await
}

/// Waits until a condition of an object is `False` with this reason.
pub(super) async fn reported_by(
    namespace: &Namespace,
    what: &str,
    reason: &str,
    text: &str,
) -> Result<()> {
    let wait = format!("{reason} of {what}");
    until(Deadline::after(SOON), &wait, async || {
        let conditions = conditions(namespace, what).await?;
        let is_reported = conditions
            .values()
            .any(|it| it["status"] == "False" && it["reason"] == reason && has(it, text));
        ensure!(is_reported, "{conditions:?}");
        Ok(())
    })
    .await
}

fn has(condition: &Value, text: &str) -> bool {
    condition["message"]
        .as_str()
        .is_some_and(|it| it.contains(text))
}

/// Waits until a GatewayServer or GatewayClient is ready in its current generation.
pub(super) async fn ready(tenant: &Tenant, kind: &str) -> Result<()> {
    let what = format!("{kind}/{}", tenant.id());
    let wait = format!("{what} to be ready");
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

/// Replaces the whole spec of an object, so that fields which an edit has added disappear.
pub(super) async fn replace(tenant: &Tenant, kind: &str, spec: &Value) -> Result<()> {
    let what = format!("{}/{}", kind.to_lowercase(), tenant.id());
    let operations = json!([{"op": "replace", "path": "/spec", "value": spec}]).to_string();
    tenant
        .namespace()
        .kubectl(&["patch", &what, "--type=json", "-p", &operations])
        .await
        .map(drop)
}
