//! The end of a tenant namespace: it is deleted unless it contains objects of other owners.

mod content;
mod kinds;
mod ownership;

use crate::cluster::Cluster;
use crate::progress::{self, begin};
use crate::wait::{Deadline, Found};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

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
    remove(cluster, name).await?;
    if let Some(deadline) = deadline {
        until_gone(cluster, name, deadline).await?;
    }
    deleting.done("Tenant namespace correctly deleted");
    Ok(())
}

/// Deletes the tenant namespace of a peering that has ended, with all objects in it, and waits until it is gone.
///
/// # Errors
///
/// Returns an error if the API server fails. If the namespace still exists at the deadline, the error says that only it is left.
pub(crate) async fn delete_with_content(
    cluster: &Cluster,
    name: &str,
    deadline: Deadline,
) -> Result<()> {
    let deleting = begin("", "Deleting tenant namespace");
    remove(cluster, name).await?;
    until_gone(cluster, name, deadline)
        .await
        .with_context(|| {
            format!(
                "the peering has ended, and only namespace {name} is left, which ends once what its conditions name is removed: \
                 the command need not be repeated"
            )
        })?;
    deleting.done("Tenant namespace correctly deleted");
    Ok(())
}

async fn remove(cluster: &Cluster, name: &str) -> Result<()> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    cluster.delete(&api, "namespace", name).await?;
    Ok(())
}

async fn until_gone(cluster: &Cluster, name: &str, deadline: Deadline) -> Result<()> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    deadline
        .until_reporting("deleting the tenant namespace", async || {
            let read = cluster.get(&api, "namespace", name).await?;
            Ok(read.map_or(Found::Ready(()), |namespace| {
                let (text, place) = (still_exists(&namespace), cluster.place());
                Found::Missing(format!("namespace {text} (in {place})"))
            }))
        })
        .await
}

/// Returns a message that a namespace still exists, with the reasons of its conditions.
pub(crate) fn still_exists(namespace: &Namespace) -> String {
    let conditions = namespace
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone());
    let messages: Vec<String> = conditions
        .unwrap_or_default()
        .into_iter()
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.message)
        .collect();
    let name = namespace.name_any();
    if messages.is_empty() {
        format!("{name} still exists")
    } else {
        format!("{name} still exists: {}", messages.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Head, Reply};
    use serde_json::{Value, json};
    use std::time::Duration;

    const MILAN: &str = "/api/v1/namespaces/liqo-tenant-milan";

    fn namespace() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-tenant-milan"},
            "status": {"conditions": [
                {"type": "NamespaceFinalizersRemaining", "status": "True", "message": "1 Pod remains"},
            ]},
        })
    }

    /// Starts a server that keeps deleted namespaces, as Kubernetes does until their objects are gone.
    fn keeping() -> (ApiServer, Front) {
        let server = ApiServer::start();
        server.put(MILAN, namespace());
        let front = Front::start(&server, |head| match head.is_delete() {
            true => Reply::response("200 OK", "", namespace().to_string()),
            false => Reply::Forward,
        });
        (server, front)
    }

    #[tokio::test]
    async fn a_deletion_with_content_ends_when_the_namespace_is_gone_and_not_before() {
        let (server, front) = keeping();
        let cluster = Cluster::behind(&front, "local");
        let deadline = Deadline::after(Duration::from_secs(10));
        let deleting = delete_with_content(&cluster, "liqo-tenant-milan", deadline);
        let mut deleting = std::pin::pin!(deleting);
        let is_read_after_deletion = async {
            front.received(Head::is_delete).await;
            front.received(|head| head.method == "GET").await;
        };
        tokio::select! {
            result = &mut deleting => panic!("{result:?}"),
            () = is_read_after_deletion => {}
        }

        server.remove(MILAN);
        deleting.await.unwrap();
    }

    #[tokio::test]
    async fn a_namespace_that_exists_at_the_deadline_is_an_error_with_its_conditions() {
        let (_server, front) = keeping();
        let cluster = Cluster::behind(&front, "local");
        let deadline = Deadline::after(Duration::from_millis(300));

        let deleted = delete_with_content(&cluster, "liqo-tenant-milan", deadline).await;

        let error = format!("{:#}", deleted.unwrap_err());
        let expected = "took longer than 300ms: namespace liqo-tenant-milan still exists: 1 Pod remains (in the local cluster";
        assert!(error.contains(expected), "{error}");
        let ended = "the peering has ended, and only namespace liqo-tenant-milan is left";
        assert!(error.starts_with(ended), "{error}");
    }

    #[tokio::test]
    async fn a_namespace_whose_deletion_is_refused_does_not_end_later() {
        let server = ApiServer::start();
        let front = Front::start(&server, |_| Reply::status(403, "Forbidden", "no right"));
        let cluster = Cluster::behind(&front, "local");
        let deadline = Deadline::after(Duration::from_secs(10));

        let deleted = delete_with_content(&cluster, "liqo-tenant-milan", deadline).await;

        let error = format!("{:#}", deleted.unwrap_err());
        assert!(error.contains("no right"), "{error}");
        assert!(!error.contains("has ended"), "{error}");
    }

    #[test]
    fn the_conditions_of_a_namespace_explain_why_it_exists() {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {"name": "liqo-tenant-milan"},
            "status": {"conditions": [
                {"type": "NamespaceContentRemaining", "status": "True", "message": "1 Pod remains"},
                {"type": "NamespaceDeletionDiscoveryFailure", "status": "False", "message": "no"},
            ]},
        }))
        .unwrap();

        assert_eq!(
            still_exists(&namespace),
            "liqo-tenant-milan still exists: 1 Pod remains"
        );
    }
}
