//! The Deployment that runs this process: uninstalling removes it, and with it what it owns.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::Api;
use std::time::Duration;

/// Name of the Deployment, as the chart gives it.
const NAME: &str = "liqo-controller-manager";

/// How long the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait after it was not reached.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Returns a reference to it; `None` if this process was started otherwise.
///
/// Waits until the API server answers.
pub(crate) async fn owner(client: &Client, namespace: &str) -> Option<OwnerReference> {
    let api: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let deployment = loop {
        match tokio::time::timeout(TIMEOUT, api.get_metadata_opt(NAME)).await {
            Ok(Ok(deployment)) => break deployment?,
            Ok(Err(kube::Error::Api(status))) => {
                tracing::warn!(%status, "failed to read Deployment {NAME}: uninstalling may leave IPs and Services");
                return None;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to read Deployment {NAME}, which is tried again");
            }
            Err(_) => tracing::warn!("no answer about Deployment {NAME}, which is tried again"),
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    };

    Some(OwnerReference {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: NAME.to_owned(),
        uid: deployment.metadata.uid?,
        block_owner_deletion: None,
        controller: None,
    })
}
