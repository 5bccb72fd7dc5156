//! Endpoints that upstream's virtual kubelet reflects to a provider.

use super::golden::Golden;
use super::kubelet::{Kubelet, version};
use super::turin::NAMESPACE;
use crate::authentication::site::Site;
use crate::upstream::golden::differences_of;
use crate::upstream::rest::Rest;
use crate::upstream::until_gone;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// Label of the slices that this kind controls.
const MANAGED: &str = "liqo.io/managed-by=shadowendpointslice";

/// A ShadowEndpointSlice is created, written without a change, changed and deleted.
pub(super) async fn check(milan: &Site, kubelet: &Kubelet) -> Result<()> {
    let rest = Rest::new(milan.client.clone(), "kubectl");
    let mut shadow = Golden::TURIN.reflected("endpointslices", "local-dqlcb")?;
    shadow = kubelet.rest.create(&shadow).await?;
    let slice = until_mapped(&rest, &shadow).await?;

    let same = kubelet.rest.update(&shadow).await?;
    ensure!(version(&same) == version(&shadow), "{same}");
    shadow["spec"]["template"]["endpoints"][0]["addresses"] = json!(["10.244.1.7"]);
    shadow["spec"]["template"]["endpoints"][0]["conditions"]["ready"] = json!(false);
    shadow = kubelet.rest.update(&shadow).await?;
    let changed = until_mapped(&rest, &shadow).await?;
    let generations = [&slice, &changed].map(|it| it["metadata"]["generation"].as_u64());
    ensure!(generations == [Some(1), Some(2)], "{generations:?}");

    kubelet.rest.delete_object(&shadow).await?;
    until_gone(&rest, "EndpointSlice", NAMESPACE, MANAGED).await
}

/// Waits until a ShadowEndpointSlice has the EndpointSlice of upstream's providers, and returns it.
async fn until_mapped(rest: &Rest, shadow: &Value) -> Result<Value> {
    let name = shadow["metadata"]["name"].as_str().context("no name")?;
    let mut expected = json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": shadow["metadata"]["labels"],
            "annotations": shadow["metadata"]["annotations"],
            "ownerReferences": [{
                "apiVersion": "offloading.liqo.io/v1beta1",
                "blockOwnerDeletion": true,
                "controller": true,
                "kind": "ShadowEndpointSlice",
                "name": name,
            }],
        },
    });
    let labels = &mut expected["metadata"]["labels"];
    labels["liqo.io/managed"] = json!("true");
    labels["liqo.io/managed-by"] = json!("shadowendpointslice");
    for field in ["addressType", "endpoints", "ports"] {
        expected[field] = shadow["spec"]["template"][field].clone();
    }
    rest.until_checked(("EndpointSlice", NAMESPACE, name), |found| {
        let differences = differences_of(found, &expected);
        ensure!(differences.is_empty(), "{differences:#?}");
        Ok(())
    })
    .await
}
