//! Verifies that a peering is complete.

use crate::site::Site;
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

/// Verifies that the provider has accepted both conditions of the ResourceSlice, that the VirtualNode exists, and that
/// the provider accepts the credentials in its kubeconfig Secret.
///
/// # Errors
///
/// Returns an error that names what is missing.
pub(crate) async fn verify(consumer: &Site) -> Result<()> {
    let slice = get(consumer, "authentication.liqo.io", "ResourceSlice").await?;
    let conditions = slice["status"]["conditions"].as_array().cloned();
    let conditions = conditions.unwrap_or_default();
    for condition in ["Authentication", "Resources"] {
        let is_accepted = |it: &Value| it["type"] == condition && it["status"] == "Accepted";
        ensure!(conditions.iter().any(is_accepted), "{conditions:?}");
    }
    let node = get(consumer, "offloading.liqo.io", "VirtualNode").await?;
    let name = &node["spec"]["kubeconfigSecretRef"]["name"];
    let name = name.as_str().context("the VirtualNode names no Secret")?;
    let secrets: Api<Secret> =
        Api::namespaced(consumer.client.clone(), &consumer.tenant_namespace());
    let data = secrets.get(name).await?.data.unwrap_or_default();
    let text = &data.get("kubeconfig").context("no kubeconfig")?.0;
    let kubeconfig = Kubeconfig::from_yaml(std::str::from_utf8(text)?)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config)?);
    let review = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .context("the provider refuses the credentials")?;
    let user = review.status.and_then(|it| it.user_info);
    let groups = user.and_then(|it| it.groups).unwrap_or_default();
    ensure!(groups.iter().any(|it| it == consumer.name), "{groups:?}");

    Ok(())
}

/// Returns the object of the peer.
async fn get(consumer: &Site, group: &str, kind: &str) -> Result<Value> {
    let kind = GroupVersionKind::gvk(group, "v1beta1", kind);
    let resource = ApiResource::from_gvk(&kind);
    let namespace = consumer.tenant_namespace();
    let api: Api<DynamicObject> =
        Api::namespaced_with(consumer.client.clone(), &namespace, &resource);
    let object = api.get(consumer.peer).await?;

    serde_json::to_value(object).context("an object is no JSON")
}
