//! Applies manifests like `kubectl apply --server-side`.

use anyhow::{Context as _, Result, bail};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, ApiCapabilities, ApiResource, Scope};
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;

use crate::wait::{self, Deadline};

/// A shop of ten services and Redis, which an offloaded namespace with the strategy `LocalAndRemote` places in two clusters.
pub const SHOP: &str = include_str!("../manifests/shop.yaml");

/// A Job that buys products of the [`SHOP`] for 30 seconds. It fails if a request fails.
pub const SHOP_LOAD: &str = include_str!("../manifests/shop-load.yaml");

/// The field manager of applied objects.
const MANAGER: &str = "liqo-lab";

/// The limit for retries while prerequisites of an object are missing, such as its CRD or its
/// namespace.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the objects of a YAML text with one or more documents.
///
/// # Errors
///
/// Returns an error that names the invalid line.
pub fn parse(yaml: &str) -> Result<Vec<Value>> {
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(yaml).context("the manifest is invalid YAML")?;

    Ok(objects.into_iter().filter(|it| !it.is_null()).collect())
}

/// Applies objects in their order. Objects without a namespace are created in `namespace`.
///
/// # Errors
///
/// Returns an error that names the object that the API server refused.
pub async fn apply(client: &Client, objects: &[Value], namespace: Option<&str>) -> Result<()> {
    let mut kinds = HashMap::new();
    for object in objects {
        let object = DynamicObject::deserialize(object).context("an object has no metadata")?;
        let types = object
            .types
            .clone()
            .context("an object has no apiVersion or kind")?;
        let gvk = GroupVersionKind::try_from(&types).context("an apiVersion is invalid")?;
        let name = object
            .metadata
            .name
            .clone()
            .context("an object has no name")?;
        let what = format!("{} {name}", gvk.kind);
        if !kinds.contains_key(&gvk) {
            let kind = wait::until(
                Deadline::after(TIMEOUT),
                &format!("the kind {}", gvk.kind),
                async || Ok(discovery::pinned_kind(client, &gvk).await?),
            )
            .await?;
            kinds.insert(gvk.clone(), kind);
        }
        let api = api(client, &kinds[&gvk], &object, namespace);
        apply_one(&api, &name, &object)
            .await
            .with_context(|| format!("failed to apply {what}"))?;
    }

    Ok(())
}

/// Applies an object. Retries while prerequisites are missing, such as the ServiceAccount of a
/// namespace or the server of a webhook.
async fn apply_one(api: &Api<DynamicObject>, name: &str, object: &DynamicObject) -> Result<()> {
    let params = PatchParams::apply(MANAGER).force();
    let refused = wait::until(
        Deadline::after(TIMEOUT),
        "the object to be accepted",
        async || {
            match api.patch(name, &params, &Patch::Apply(object)).await {
                Ok(_) => Ok(None),
                // The API server would refuse an invalid object again, so the request is not
                // retried.
                Err(kube::Error::Api(status)) if [400, 409, 422].contains(&status.code) => {
                    Ok(Some(status.message))
                }
                Err(error) => Err(error.into()),
            }
        },
    )
    .await?;

    match refused {
        Some(reason) => bail!(reason),
        None => Ok(()),
    }
}

fn api(
    client: &Client,
    (resource, capabilities): &(ApiResource, ApiCapabilities),
    object: &DynamicObject,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    if capabilities.scope == Scope::Cluster {
        return Api::all_with(client.clone(), resource);
    }
    let namespace = object.metadata.namespace.as_deref().or(namespace);

    Api::namespaced_with(client.clone(), namespace.unwrap_or("default"), resource)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::core::v1::Service;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    #[test]
    fn objects_of_the_shop_have_only_fields_of_their_kinds() {
        let objects = [SHOP, SHOP_LOAD].map(|text| parse(text).unwrap()).concat();

        assert_eq!(objects.len(), 23);
        for object in objects {
            let known = match object["kind"].as_str().unwrap() {
                "Deployment" => known::<Deployment>(&object),
                "Job" => known::<Job>(&object),
                "Service" => known::<Service>(&object),
                kind => panic!("{kind}"),
            };
            assert_eq!(known, object);
        }
    }

    /// Returns the fields of an object that its type has.
    fn known<T: DeserializeOwned + Serialize>(object: &Value) -> Value {
        let typed: T = serde_json::from_value(object.clone()).unwrap();
        serde_json::to_value(typed).unwrap()
    }
}
