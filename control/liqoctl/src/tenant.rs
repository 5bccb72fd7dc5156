//! Tenant namespaces: each contains the objects of one peer.

use crate::cluster::{Cluster, list_all};
use crate::failure;
use crate::pair::Side;
use crate::parse::TENANT_PREFIX;
use crate::steps::{Lines, State, Step};
use anyhow::{Result, anyhow};
use control_api::labels;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// Returns the name of the peer's tenant namespace, or none.
///
/// # Errors
///
/// Returns an error if several namespaces are labelled for the peer, or if the API server fails.
pub(crate) async fn find(cluster: &Cluster, peer: &str) -> Result<Option<String>> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    let selector = format!(
        "{}={peer},{}",
        labels::REMOTE_CLUSTER_ID,
        labels::TENANT_NAMESPACE
    );
    let found = match list_all(&api, &selector).await {
        Ok(found) => found,
        // Forbidden to list: try the default name.
        Err(error) if failure::is_forbidden(&error) => {
            let name = format!("{TENANT_PREFIX}{peer}");
            let read = cluster.get(&api, "namespace", &name).await?;
            read.into_iter().collect()
        }
        Err(error) => return Err(cluster.failed("list tenant namespaces")(error)),
    };
    choose(&found, peer).map_err(|reason| anyhow!("{reason} (in {})", cluster.place()))
}

/// Returns all tenant namespaces with the cluster IDs of their peers.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn all(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let api = Api::<Namespace>::all(cluster.client.clone());
    let found = cluster
        .list(&api, "tenant namespaces", labels::TENANT_NAMESPACE)
        .await?;
    let pair = |namespace: &Namespace| {
        let peer = namespace.labels().get(labels::REMOTE_CLUSTER_ID).cloned();
        (namespace.name_any(), peer.unwrap_or_default())
    };
    Ok(found.iter().map(pair).collect())
}

/// Step: a cluster has the tenant namespace of its peer; returns the namespace's name.
pub(crate) struct TenantNamespace<'a>(pub(crate) &'a Side);

impl Step for TenantNamespace<'_> {
    type Desired = ();
    type Output = String;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.0.cluster.side,
            apply: None,
            wait: None,
            goal: "creating the tenant namespace",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<String>> {
        let cluster = &self.0.cluster;
        let Some(name) = find(cluster, &self.0.peer).await? else {
            return Ok(State::Pending);
        };
        let api = Api::<Namespace>::all(cluster.client.clone());
        let read = cluster.get(&api, "namespace", &name).await?;
        let is_terminating = read.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
        Ok(match is_terminating {
            true => State::Blocked(format!(
                "namespace {name} in {} is still being deleted",
                cluster.place()
            )),
            false => State::Ready(name),
        })
    }

    async fn apply(&self, (): &()) -> Result<()> {
        let cluster = &self.0.cluster;
        let api = Api::<Namespace>::all(cluster.client.clone());
        cluster.apply(&api, manifest(&self.0.peer)).await?;
        Ok(())
    }
}

/// Returns the namespace to create for `peer`.
fn manifest(peer: &str) -> Value {
    const PRIVILEGED: &str = "privileged";
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": format!("{TENANT_PREFIX}{peer}"),
            "labels": {
                labels::REMOTE_CLUSTER_ID: peer,
                labels::TENANT_NAMESPACE: "true",
                "pod-security.kubernetes.io/audit": PRIVILEGED,
                "pod-security.kubernetes.io/enforce": PRIVILEGED,
                "pod-security.kubernetes.io/warn": PRIVILEGED,
            },
        },
    })
}

fn choose(found: &[Namespace], peer: &str) -> Result<Option<String>, String> {
    match found {
        [] => Ok(None),
        [only] => Ok(Some(only.name_any())),
        several => {
            let names: Vec<String> = several.iter().map(|n| n.name_any()).collect();
            Err(format!(
                "several tenant namespaces are labelled for peer {peer} ({}): remove the label {} from all but one",
                names.join(", "),
                labels::TENANT_NAMESPACE,
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(name: &str) -> Namespace {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        namespace
    }

    #[test]
    fn two_namespaces_of_one_peer_are_an_error() {
        let found = [namespace("a"), namespace("b")];

        assert_eq!(choose(&[], "milan"), Ok(None));
        assert_eq!(choose(&found[..1], "milan"), Ok(Some("a".into())));
        assert!(choose(&found, "milan").unwrap_err().contains("(a, b)"));
    }

    #[test]
    fn a_tenant_namespace_has_upstreams_labels() {
        let object = manifest("milan");

        let expected = json!({
            "liqo.io/remote-cluster-id": "milan",
            "liqo.io/tenant-namespace": "true",
            "pod-security.kubernetes.io/audit": "privileged",
            "pod-security.kubernetes.io/enforce": "privileged",
            "pod-security.kubernetes.io/warn": "privileged",
        });
        assert_eq!(object["metadata"]["name"], "liqo-tenant-milan");
        assert_eq!(object["metadata"]["labels"], expected);
    }
}
