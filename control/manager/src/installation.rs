//! The Deployment that runs this process, and the user that this process is for the API server.
//!
//! The Deployment owns objects of the manager, so that an uninstallation removes them.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, PostParams};
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

/// Returns the name of the user that this process is for the API server.
///
/// Waits until the API server responds.
///
/// # Errors
///
/// Returns an error if the API server refuses the review.
pub(crate) async fn user(client: &Client) -> anyhow::Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let (review, params) = (SelfSubjectReview::default(), PostParams::default());
    let review = loop {
        match tokio::time::timeout(TIMEOUT, api.create(&params, &review)).await {
            Ok(Ok(review)) => break review,
            Ok(Err(kube::Error::Api(status))) => {
                return Err(anyhow::anyhow!(status.message))
                    .context("failed to read the user of this process by a SelfSubjectReview");
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "failed to read the user of this process: retrying")
            }
            Err(_) => tracing::warn!("timed out while reading the user of this process: retrying"),
        }
        tokio::time::sleep(RETRY_PERIOD).await;
    };
    let user = review.status.and_then(|status| status.user_info);
    let name = user.and_then(|user| user.username);

    name.context("the API server returns no user name for this process")
}
