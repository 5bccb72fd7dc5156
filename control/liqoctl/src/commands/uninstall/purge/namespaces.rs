//! The namespaces that a purge removes.

use crate::cluster::{Cluster, list_all};
use crate::tenant;
use crate::wait::{Deadline, Found};
use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use serde_json::json;

/// Label selector of the namespaces that upstream's storage creates.
const STORAGE: &str = "liqo.io/storage-provisioner=true";

/// Label of Liqo's namespace from the start of a purge. After an interrupted purge, the next one finds
/// the namespace by this label, even if all other objects of Liqo are deleted.
const MARK: &str = "liqoctl.liqo.io/purge";

/// Adds the label [`MARK`] to Liqo's namespace.
///
/// # Errors
///
/// Returns an error if the API server refuses the label.
pub(in crate::commands::uninstall) async fn mark(cluster: &Cluster, namespace: &str) -> Result<()> {
    if is_of_kubernetes(namespace) {
        return Ok(());
    }
    let api = Api::<Namespace>::all(cluster.client.clone());
    if cluster.get(&api, "namespace", namespace).await?.is_some() {
        let labelled = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {MARK: "true"}},
        });
        cluster.apply(&api, labelled).await?;
    }
    Ok(())
}

/// Removes the namespaces of Liqo, of peers and of storage.
///
/// # Errors
///
/// Returns an error that names a namespace that still exists at the deadline.
pub(crate) async fn remove(cluster: &Cluster, liqo: &str, deadline: Deadline) -> Result<()> {
    if is_of_kubernetes(liqo) {
        bail!(
            "namespace {liqo} belongs to Kubernetes and is not deleted: remove Liqo's objects in it manually"
        );
    }
    let api = Api::<Namespace>::all(cluster.client.clone());
    let mut names: Vec<String> = tenant::all(cluster)
        .await?
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for selector in [STORAGE, MARK] {
        let found = cluster.list(&api, "namespaces", selector).await?;
        names.extend(found.iter().map(|namespace| namespace.name_any()));
    }
    names.push(liqo.to_owned());
    for name in &names {
        cluster.delete(&api, "namespace", name).await?;
    }
    deadline
        .until_reporting("deleting the namespaces", async || {
            let all = list_all(&api, "")
                .await
                .map_err(cluster.failed("list namespaces"))?;
            let left = all.iter().find(|found| names.contains(&found.name_any()));
            Ok(left.map_or(Found::Ready(()), |namespace| {
                Found::Missing(still_exists(namespace))
            }))
        })
        .await
}

/// Returns whether a namespace belongs to Kubernetes.
fn is_of_kubernetes(namespace: &str) -> bool {
    namespace == "default" || namespace.starts_with("kube-")
}

/// Returns a message that a namespace still exists, with the reasons of its conditions.
fn still_exists(namespace: &Namespace) -> String {
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
