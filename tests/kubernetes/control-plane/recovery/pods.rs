//! Pods of the virtual node with a token of their ServiceAccount, and the Secrets of the provider with these tokens.

use super::comparison::{Fields, REMOTE, is_same};
use crate::fixture::{Deadline, SOON, until};
use crate::refusals::scene::{self, Scene};
use crate::upstream::rest::{Rest, refusal};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// Pods that change.
pub(super) const PODS: usize = 12;

/// Pods that do not change, so that there are some.
const CONSTANT: usize = 3;

/// Label of the Secrets with tokens. Value: name of the ServiceAccount.
const ACCOUNT: &str = "offloading.liqo.io/service-account-name";

/// Annotation of such a Secret. Value: when its first token expires.
const EXPIRATION: &str = "offloading.liqo.io/service-account-expiration";

pub(super) fn name(number: usize) -> String {
    format!("pod-{number}")
}

/// Returns the name of the Secret with the tokens of a pod.
pub(super) fn secret_name(pod: &str) -> String {
    format!("{pod}-token")
}

/// Returns a pod that stays on its node while that is not ready.
fn pod(number: usize) -> Value {
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}});
    let volume = json!({"name": "access", "projected": {"sources": [token]}});
    let mut pod = scene::pod(&name(number), "100m", &json!([volume]));
    let tolerations = pod["spec"]["tolerations"].as_array_mut();
    tolerations.into_iter().for_each(|it| {
        it.extend(["not-ready", "unreachable"].map(|taint| {
            let key = format!("node.kubernetes.io/{taint}");
            json!({"key": key, "operator": "Exists", "effect": "NoExecute"})
        }));
    });

    pod
}

/// Creates a pod, unless one of this name exists, which may be terminating.
pub(super) async fn create(rest: &Rest, number: usize) -> Result<()> {
    let pod = pod(number);
    // The namespace gets its ServiceAccount a moment after it exists.
    until(Deadline::after(SOON), "a pod", async || {
        match rest.create(&pod).await {
            Err(error) if refusal(&error) == Some(409) => Ok(()),
            created => created.map(drop),
        }
    })
    .await
}

/// Deletes a pod of the consumer, or the Secret of a pod at the provider.
pub(super) async fn delete(rest: &Rest, (kind, namespace, name): (&str, &str, &str)) -> Result<()> {
    until(Deadline::after(SOON), "a deletion", async || {
        rest.delete(kind, namespace, name).await?;
        Ok(())
    })
    .await
}

/// Creates the pods that do not change.
pub(super) async fn create_constant(rest: &Rest) -> Result<()> {
    for number in PODS..PODS + CONSTANT {
        create(rest, number).await?;
    }

    Ok(())
}

/// Creates the first half of the pods that change, and those that do not.
pub(super) async fn create_half(rest: &Rest) -> Result<()> {
    for number in 0..PODS / 2 {
        create(rest, number).await?;
    }

    create_constant(rest).await
}

/// Deletes every second pod of the first half, from `first` on, and creates as many of the second half.
pub(super) async fn change(rest: &Rest, first: usize) -> Result<()> {
    for number in (first..PODS / 2).step_by(2) {
        delete(rest, ("Pod", "shop", &name(number))).await?;
        create(rest, PODS / 2 + number).await?;
    }

    Ok(())
}

/// Waits until the provider has the Secret of each pod, and no others.
pub(super) async fn until_equal(scene: &Scene, deadline: Deadline) -> Result<()> {
    until(deadline, "the tokens of each pod", async || {
        let pods = scene.rome.list("Pod", "shop", "").await?;
        ensure!(pods.len() >= CONSTANT, "{} pods are left", pods.len());
        let expected = pods.iter().map(|pod| {
            let name = pod["metadata"]["name"].as_str().context("no name")?;
            Ok((secret_name(name), expected(pod)))
        });
        let expected = expected.collect::<Result<Fields>>()?;
        let secrets = scene.milan.list("Secret", REMOTE, ACCOUNT).await?;
        let found = secrets.iter().map(|secret| {
            let name = secret["metadata"]["name"].as_str().context("no name")?;
            Ok((name.to_owned(), found(secret)?))
        });

        is_same(&found.collect::<Result<Fields>>()?, &expected)
    })
    .await
}

/// Returns labels, annotations and keys of the Secret of a pod, as with upstream. The key contains SHA-256 of the path.
fn expected(pod: &Value) -> Value {
    let metadata = &pod["metadata"];
    json!({
        "type": "Opaque",
        "labels": {
            "offloading.liqo.io/origin": "rome",
            "offloading.liqo.io/destination": "milan",
            "offloading.liqo.io/nodename": "milan",
            ACCOUNT: "default",
        },
        "annotations": {
            "offloading.liqo.io/service-account-for-pod-name": metadata["name"],
            "offloading.liqo.io/service-account-for-pod-uid": metadata["uid"],
        },
        "is_valid": true,
        "keys": ["access-3c469e"],
    })
}

/// Returns the same of a Secret of the provider, and whether its tokens are valid.
fn found(secret: &Value) -> Result<Value> {
    let mut annotations = secret["metadata"]["annotations"].clone();
    let expiration = annotations
        .as_object_mut()
        .and_then(|it| it.remove(EXPIRATION));
    let expiration = expiration.as_ref().and_then(Value::as_str);
    let expiration: Timestamp = expiration.context("no expiration")?.parse()?;
    let keys = secret["data"]
        .as_object()
        .into_iter()
        .flat_map(|it| it.keys());

    Ok(json!({
        "type": secret["type"],
        "labels": secret["metadata"]["labels"],
        "annotations": annotations,
        "is_valid": expiration > Timestamp::now(),
        "keys": Vec::from_iter(keys),
    }))
}
