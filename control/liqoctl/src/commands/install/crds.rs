//! Applies the CRDs of the chart, which Helm creates but never updates.

use crate::cluster::Cluster;
use crate::wait::{Deadline, Found};
use anyhow::Result;
use futures_util::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, ResourceExt as _};

/// Applies the CRDs and waits until they are served. Returns whether there are any.
///
/// # Errors
///
/// Returns an error if the API server refuses a CRD or does not serve it at the deadline.
pub(crate) async fn apply(
    cluster: &Cluster,
    crds: &[CustomResourceDefinition],
    deadline: Deadline,
) -> Result<bool> {
    let api = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    try_join_all(crds.iter().map(async |crd| {
        let name = crd.name_any();
        let mut applied = cluster.apply(&api, serde_json::to_value(crd)?).await?;
        deadline
            .until(&format!("serving CRD {name}"), async || {
                if is_established(&applied) {
                    return Ok(Found::Ready(()));
                }
                if let Some(read) = cluster.get(&api, "CRD", &name).await? {
                    applied = read;
                }
                Ok(Found::Missing("it is not established".to_owned()))
            })
            .await
    }))
    .await?;
    Ok(!crds.is_empty())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| {
        all.iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
}
