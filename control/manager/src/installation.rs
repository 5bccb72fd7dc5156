//! The Deployment that runs this process. It owns objects of the manager, so that an uninstallation removes them.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::Api;
use std::time::Duration;

/// Name of the Deployment, as in the chart.
const NAME: &str = "liqo-controller-manager";

/// Time-out of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between attempts while the API server is unreachable.
const RETRY_PERIOD: Duration = Duration::from_secs(2);

/// Returns a reference to the Deployment; `None` if the process runs without it.
///
/// Waits until the API server responds.
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
                tracing::warn!(%error, "failed to read Deployment {NAME}: retrying");
            }
            Err(_) => tracing::warn!("timed out while reading Deployment {NAME}: retrying"),
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
