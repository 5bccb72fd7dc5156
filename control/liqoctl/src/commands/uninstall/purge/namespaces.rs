//! The namespaces that a purge removes.

use super::SELECTOR;
use crate::cluster::{Cluster, list_all};
use crate::namespaces::is_of_kubernetes;
use crate::progress;
use crate::tenant::{self, removal::still_exists};
use crate::wait::{Deadline, Found};
use anyhow::Result;
use control_api::labels;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::{Api, ResourceExt as _};
use serde_json::json;

/// Label selector of the namespaces that upstream's storage creates.
const STORAGE: &str = "liqo.io/storage-provisioner=true";

/// Label of Liqo's namespace from the start of a purge. After an interrupted purge, the next one finds
/// the namespace by this label, even if all other objects of Liqo are deleted.
const MARK: &str = "liqoctl.liqo.io/purge";

/// Adds the label [`MARK`] to Liqo's namespace. Without evidence of an installation, the namespace may be of a user, and is
/// kept. `is_installed` is such an evidence; objects that an uninstallation has left are another.
///
/// # Errors
///
/// Returns an error if the API server refuses the label.
pub(in crate::commands::uninstall) async fn mark(
    cluster: &Cluster,
    namespace: &str,
    is_installed: bool,
) -> Result<()> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    let existing = cluster.get(&api, "namespace", namespace).await?;
    let is_marked = |it: &Namespace| it.labels().contains_key(MARK);
    if existing.is_none_or(|it| is_marked(&it)) || is_of_kubernetes(namespace) {
        return Ok(());
    }
    if !is_installed && !has_objects(cluster, namespace).await? {
        progress::warn(format_args!(
            "namespace {namespace} contains no object of Liqo and is kept: if it was Liqo's, run `kubectl delete namespace {namespace}`; \
             if Liqo is in another one, name that with --namespace"
        ));
        return Ok(());
    }
    let labelled = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": namespace, "labels": {MARK: "true"}},
    });
    cluster.apply(&api, labelled).await?;
    Ok(())
}

/// Returns whether a namespace contains objects of the chart, or Secrets of the controller manager, which outlast an
/// uninstallation.
async fn has_objects(cluster: &Cluster, namespace: &str) -> Result<bool> {
    let deployments = Api::<Deployment>::namespaced(cluster.client.clone(), namespace);
    let maps = Api::<ConfigMap>::namespaced(cluster.client.clone(), namespace);
    let secrets = Api::<Secret>::namespaced(cluster.client.clone(), namespace);
    let managed = format!("{}=true", labels::MANAGED);
    let (deployments, maps, secrets) = tokio::try_join!(
        cluster.list(&deployments, "Deployments", SELECTOR),
        cluster.list(&maps, "ConfigMaps", SELECTOR),
        cluster.list(&secrets, "Secrets", &managed),
    )?;
    Ok(!deployments.is_empty() || !maps.is_empty() || !secrets.is_empty())
}

/// Removes the namespaces of Liqo, of peers and of storage. Keeps namespaces of Kubernetes, also if Liqo is in one.
///
/// # Errors
///
/// Returns an error that names a namespace that still exists at the deadline.
pub(crate) async fn remove(cluster: &Cluster, liqo: &str, deadline: Deadline) -> Result<()> {
    if is_of_kubernetes(liqo) {
        progress::warn(format_args!(
            "namespace {liqo} belongs to Kubernetes and is kept: `kubectl delete secrets --namespace {liqo} --selector {}=true` removes \
             Liqo's keys and certificates in it",
            labels::MANAGED
        ));
    }
    let api = Api::<Namespace>::all(cluster.client.clone());
    let tenants = tenant::all(cluster).await?;
    let mut names: Vec<String> = tenants.into_iter().map(|(name, _)| name).collect();
    for selector in [STORAGE, MARK] {
        let found = cluster.list(&api, "namespaces", selector).await?;
        names.extend(found.iter().map(|namespace| namespace.name_any()));
    }
    names.retain(|name| !is_of_kubernetes(name));
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

#[cfg(test)]
mod tests {
    use super::*;
    use fake_apiserver::{ApiServer, Front, Reply};
    use serde_json::Value;
    use std::time::Duration;

    /// A purge with Liqo in this namespace; returns the server after it.
    async fn purged(objects: &[(&str, Value)], liqo: &str, is_installed: bool) -> ApiServer {
        let server = ApiServer::start();
        for (path, object) in objects {
            server.put(path, object.clone());
        }
        let front = Front::start(&server, |_| Reply::Forward);
        let cluster = Cluster::behind(&front, "local");
        mark(&cluster, liqo, is_installed).await.unwrap();
        let deadline = Deadline::after(Duration::from_secs(10));
        remove(&cluster, liqo, deadline).await.unwrap();
        server
    }

    fn object(name: &str, labels: &Value) -> Value {
        json!({"metadata": {"name": name, "labels": labels}})
    }

    const LIQO: &str = "/api/v1/namespaces/liqo";
    const KEYS: &str = "/api/v1/namespaces/liqo/secrets/authentication-keys";

    #[tokio::test]
    async fn a_namespace_without_evidence_of_an_installation_is_kept() {
        let (none, managed) = (json!({}), json!({"liqo.io/managed": "true"}));
        let of_user = [
            (LIQO, object("liqo", &none)),
            (
                "/api/v1/namespaces/liqo/configmaps/notes",
                object("notes", &none),
            ),
        ];
        let server = purged(&of_user, "liqo", false).await;
        assert!(server.get(LIQO).is_some());

        let left = [
            (LIQO, object("liqo", &none)),
            (KEYS, object("authentication-keys", &managed)),
        ];
        let server = purged(&left, "liqo", false).await;
        assert_eq!(server.get(LIQO), None);

        let server = purged(&of_user, "liqo", true).await;
        assert_eq!(server.get(LIQO), None);
        let marked = [(LIQO, object("liqo", &json!({MARK: "true"})))];
        let server = purged(&marked, "liqo", false).await;
        assert_eq!(server.get(LIQO), None);
    }

    #[tokio::test]
    async fn a_namespace_of_kubernetes_is_kept_and_those_of_peers_are_removed() {
        let labels =
            json!({"liqo.io/remote-cluster-id": "milan", "liqo.io/tenant-namespace": "true"});
        let tenant = "/api/v1/namespaces/liqo-tenant-milan";
        for kept in ["default", "kube-system"] {
            let path = format!("/api/v1/namespaces/{kept}");
            let objects = [
                (path.as_str(), object(kept, &json!({MARK: "true"}))),
                (tenant, object("liqo-tenant-milan", &labels)),
            ];

            let server = purged(&objects, kept, true).await;

            assert!(server.get(&path).is_some(), "{kept}");
            assert_eq!(server.get(tenant), None);
        }
    }
}
