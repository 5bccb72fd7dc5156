//! The Deployment of a virtual kubelet.

use super::arguments::remote_cidrs;
use super::image::is_upstream;
use super::source::Source;
use super::template::PREFIX;
use crate::authentication::label;
use crate::network::covers;
use crate::offloading::item::WorkItem;
use crate::offloading::objects::{Local, Refusal};
use crate::offloading::write::delete;
use control_api::annotations::{DEPLOYMENT_HASH, OFFLOADING_PATCH_HASH};
use control_api::{VirtualNode, labels};
use control_credentials::digest;
use control_runtime::{Action, Cluster, Key, Plan, Ref, Write};
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;

/// Returns the key of the Deployment of a VirtualNode.
pub(super) fn key_of(node: &Key) -> Key {
    Key::new(&*node.namespace, format!("{PREFIX}{}", node.name))
}

/// Returns the Deployment of a VirtualNode, unless the one of this name is of another owner.
pub(super) fn own<'a>(local: &Local<'a>, node: &Key) -> Option<&'a Deployment> {
    let deployment = local.deployments.get(&key_of(node))?;
    is_own(deployment, node).then_some(deployment)
}

fn is_own(deployment: &Deployment, node: &Key) -> bool {
    let metadata = &deployment.metadata;
    label(metadata, labels::MANAGED) == Some("true")
        && label(metadata, labels::VIRTUAL_NODE) == Some(&node.name)
}

/// Returns the name of the VirtualNode of a Deployment or a pod.
pub(super) fn node_of(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<Key> {
    let name = label(metadata, labels::VIRTUAL_NODE)?;
    Some(Key::new(metadata.namespace.as_deref()?, name))
}

/// Plans the Deployment of a VirtualNode, whose `spec.template` is complete.
///
/// # Errors
///
/// Returns a refusal if a Deployment of this name is of another owner.
pub(super) fn plan(
    plan: &mut Plan<WorkItem>,
    local: &Local<'_>,
    node: &VirtualNode,
    source: &Source<'_>,
) -> Result<(), Refusal> {
    let key = key_of(source.key);
    let object = Ref::of::<Deployment>(&Cluster::Local, &key);
    let mut desired = desired(node, source);
    let Some(present) = local.deployments.get(&key) else {
        let mut write = Write::new(object, Action::Create(desired));
        // Pods that precede their ServiceAccount are created again after a delay only.
        write.is_last = true;
        plan.writes.push(write);
        return Ok(());
    };
    if !is_own(present, source.key) {
        let message = format!(
            "Deployment {key} exists and is not of this VirtualNode: delete it, or give the VirtualNode another name"
        );
        return Err(("DeploymentExists", message));
    }
    if present.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let actual = serde_json::to_value(present).unwrap_or_default();
    if covers(&actual, &desired) {
        return Ok(());
    }
    if !keep_selector(&mut desired, &actual) {
        delete(plan, &key, present);
        return Ok(());
    }
    if covers(&actual, &desired) {
        return Ok(());
    }
    for path in ["/metadata", "/spec/template/metadata"] {
        keep_annotations(&mut desired, &actual, path);
    }
    for field in ["finalizers", "ownerReferences"] {
        if let Some(kept) = actual["metadata"].get(field) {
            desired["metadata"][field] = kept.clone();
        }
    }
    let mut write = Write::new(object, Action::Update(desired));
    write.uid = present.metadata.uid.clone();
    write.resource_version = present.metadata.resource_version.clone();
    plan.writes.push(write);

    Ok(())
}

/// Returns the Deployment that the template of a VirtualNode describes.
fn desired(node: &VirtualNode, source: &Source<'_>) -> Value {
    let mut desired = serde_json::to_value(&node.spec.template).unwrap_or_default();
    let container = &mut desired["spec"]["template"]["spec"]["containers"][0];
    let image = container["image"].as_str().unwrap_or_default();
    // Only here, so that the VirtualNode does not change with the networks.
    if !is_upstream(image)
        && let Some(arguments) = container["args"].as_array_mut()
    {
        arguments.extend(remote_cidrs(source).into_iter().map(Value::from));
    }
    desired["metadata"]["labels"][labels::MANAGED] = json!("true");
    let patch = serde_json::to_vec(&node.spec.offloading_patch).unwrap_or_default();
    desired["spec"]["template"]["metadata"]["annotations"][OFFLOADING_PATCH_HASH] =
        json!(sha256(&patch));
    let hash = digest(&[desired.to_string().as_bytes()]);
    desired["metadata"]["annotations"][DEPLOYMENT_HASH] = json!(hash);

    desired
}

/// Takes the selector of the existing Deployment, which is immutable; returns whether it selects the pods.
fn keep_selector(desired: &mut Value, actual: &Value) -> bool {
    let selector = &actual["spec"]["selector"];
    let labels = &desired["spec"]["template"]["metadata"]["labels"];
    let selected = selector["matchLabels"].as_object();
    let selects = selector["matchExpressions"].is_null()
        && selected.is_some_and(|selected| covers(labels, &json!(selected)));
    if selects {
        desired["spec"]["selector"] = selector.clone();
    }

    selects
}

/// Keeps annotations of Kubernetes' controllers and clients, such as `kubectl rollout restart`.
fn keep_annotations(desired: &mut Value, actual: &Value, path: &str) {
    let annotations = actual
        .pointer(path)
        .and_then(|it| it["annotations"].as_object());
    let Some(metadata) = desired.pointer_mut(path) else {
        return;
    };
    for (key, value) in annotations.into_iter().flatten() {
        let is_kept = labels::is_reserved(key)
            && !labels::domain(key).is_some_and(|domain| domain.ends_with("liqo.io"));
        if is_kept && metadata["annotations"][key.as_str()].is_null() {
            metadata["annotations"][key.as_str()] = value.clone();
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }

    text
}
