//! The end of a tenant namespace: it is deleted unless it contains objects of other owners.

mod content;
mod kinds;
mod ownership;

use crate::cluster::Cluster;
use crate::progress::{self, begin};
use crate::wait::{Deadline, Found};
use anyhow::Result;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

/// Deletes a tenant namespace whose peering has ended. Waits until it is gone if there is a deadline.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn delete(
    cluster: &Cluster,
    name: &str,
    deadline: Option<Deadline>,
) -> Result<()> {
    let deleting = begin(cluster.side, "Deleting tenant namespace");
    if let Some(reason) = content::reason_to_keep(cluster, name).await? {
        drop(deleting);
        let text = format!("Tenant namespace {name} is kept: {reason}");
        progress::info(progress::scoped(cluster.side, text));
        return Ok(());
    }
    let api = Api::<Namespace>::all(cluster.client.clone());
    cluster.delete(&api, "namespace", name).await?;
    if let Some(deadline) = deadline {
        deadline
            .until("deleting the tenant namespace", async || {
                let read = cluster.get(&api, "namespace", name).await?;
                Ok(read.map_or(Found::Ready(()), |_| {
                    Found::Missing(format!(
                        "namespace {name} still exists in {}",
                        cluster.place()
                    ))
                }))
            })
            .await?;
    }
    deleting.done("Tenant namespace correctly deleted");
    Ok(())
}
