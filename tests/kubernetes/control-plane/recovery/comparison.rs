//! Compares both clusters by the table of `docs/reflection.md`.

use super::objects::{PART, PARTS, POPULATION};
use super::pods;
use crate::fixture::{Deadline, until};
use crate::refusals::scene::Scene;
use crate::upstream::rest::Rest;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The provider's namespace of `shop`.
pub(super) const REMOTE: &str = "shop-rome";

/// Time limit of the convergence. A loaded machine reflects some thirty objects per second, and a field that another manager of the
/// provider has changed repeatedly is written once a minute.
const CONVERGED: Duration = Duration::from_secs(480);

/// Fields of Services that are reflected.
const OF_SERVICES: [&str; 12] = [
    "type",
    "selector",
    "ports",
    "externalName",
    "allocateLoadBalancerNodePorts",
    "externalTrafficPolicy",
    "internalTrafficPolicy",
    "ipFamilyPolicy",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
    "publishNotReadyAddresses",
    "sessionAffinity",
];

/// The fields of the objects of a kind, by name.
pub(super) type Fields = BTreeMap<String, Value>;

/// Waits until the provider has the objects of the consumer and the tokens of its pods, and no others.
pub(super) async fn until_equal(scene: &Scene) -> Result<()> {
    let Err(error) = compare(scene).await else {
        return Ok(());
    };
    let events = scene.rome.list("Event", "shop", "").await?;
    let warnings = events.iter().filter(|it| it["type"] == "Warning");
    let messages = BTreeSet::from_iter(warnings.map(|it| it["message"].to_string()));
    let shown = Vec::from_iter(messages.iter().take(5));

    Err(error).with_context(|| format!("{} warnings: {shown:?}", messages.len()))
}

async fn compare(scene: &Scene) -> Result<()> {
    let deadline = Deadline::after(CONVERGED);
    for (kind, _) in POPULATION {
        for part in 0..PARTS {
            let labels = format!("{PART}={part}");
            let what = format!("each {kind} with {labels}");
            until(deadline, &what, async || {
                let local = fields(&scene.rome, (kind, "shop"), &labels, expected).await?;
                let shadow = match kind {
                    "EndpointSlice" => "ShadowEndpointSlice",
                    _ => kind,
                };
                let remote = fields(&scene.milan, (shadow, REMOTE), &labels, reflected).await?;
                is_same(&remote, &local)?;
                if kind == "EndpointSlice" {
                    let content = |it: &Value| content(it);
                    let slices = fields(&scene.milan, (kind, REMOTE), &labels, content).await?;
                    let shadows = (shadow, REMOTE);
                    let content = |it: &Value| self::content(&it["spec"]["template"]);
                    let shadows = fields(&scene.milan, shadows, &labels, content).await?;
                    is_same(&slices, &shadows)?;
                }
                Ok(())
            })
            .await?;
        }
    }

    pods::until_equal(scene, deadline).await
}

pub(super) fn is_same(found: &Fields, expected: &Fields) -> Result<()> {
    let names = expected.keys().chain(found.keys());
    let mut different = names.filter(|it| found.get(*it) != expected.get(*it));
    if let Some(name) = different.next() {
        let others = different.count();
        let [found, expected] = [found, expected].map(|it| it.get(name));
        anyhow::bail!("{name} is {found:?}, not {expected:?}, and {others} others differ");
    }

    Ok(())
}

async fn fields(
    rest: &Rest,
    (kind, namespace): (&str, &str),
    labels: &str,
    fields: impl Fn(&Value) -> Value,
) -> Result<Fields> {
    let objects = rest.list(kind, namespace, labels).await?;
    let named = objects.iter().map(|it| {
        let name = it["metadata"]["name"].as_str().unwrap_or_default();
        (name.to_owned(), fields(it))
    });
    let named: Fields = named.collect();
    ensure!(!named.is_empty(), "there is no {kind} in {namespace}");

    Ok(named)
}

/// Returns the fields that the reflected object of an object of this cluster must have.
fn expected(local: &Value) -> Value {
    let mut expected = reflected(local);
    let labels = &mut expected["labels"];
    labels["offloading.liqo.io/origin"] = json!("rome");
    labels["offloading.liqo.io/destination"] = json!("milan");
    if local["kind"] == "EndpointSlice" {
        labels["endpointslice.kubernetes.io/managed-by"] =
            json!("endpointslice.reflection.liqo.io");
        let mut content = content(local);
        for endpoint in content["endpoints"].as_array_mut().into_iter().flatten() {
            endpoint["nodeName"] = json!("rome");
        }
        expected["content"] = content;
    }

    expected
}

/// Returns the fields of an object of the provider that are reflected.
fn reflected(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let content = match object["kind"].as_str().unwrap_or_default() {
        "ConfigMap" => of(object, &["data", "binaryData", "immutable"]),
        "Secret" => of(object, &["data", "type", "immutable"]),
        "Ingress" => of(&object["spec"], &["defaultBackend", "rules", "tls"]),
        "Service" => of(&object["spec"], &OF_SERVICES),
        "Widget" => object["spec"].clone(),
        _ => content(&object["spec"]["template"]),
    };

    json!({"labels": metadata["labels"], "annotations": metadata["annotations"], "content": content})
}

/// Returns the fields that an EndpointSlice and the template of one have in common.
fn content(slice: &Value) -> Value {
    of(slice, &["addressType", "endpoints", "ports"])
}

fn of(object: &Value, fields: &[&str]) -> Value {
    Value::from_iter(fields.iter().map(|it| (*it, object[*it].clone())))
}
