//! Tenant namespaces: each contains the objects of one peer.

pub(crate) mod removal;

use crate::cluster::{Cluster, list_all};
use crate::failure;
use crate::global::Global;
use crate::observed::REFRESH;
use crate::pair::Side;
use crate::parse::TENANT_PREFIX;
use crate::state::State;
use crate::steps::{Lines, Step, lines};
use crate::wait::PERIOD;
use anyhow::{Context as _, Result, anyhow};
use control_api::{labels, tenant_namespace};
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::WatchParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};

/// Returns the name of the peer's tenant namespace, or none.
///
/// # Errors
///
/// Returns an error if several namespaces are labelled for the peer, or if the API server fails.
pub(crate) async fn find(cluster: &Cluster, peer: &str) -> Result<Option<String>> {
    let found = read(cluster, peer).await?;
    Ok(found.map(|namespace| namespace.name_any()))
}

/// Returns the name of the peer's tenant namespace.
///
/// # Errors
///
/// Returns an error with the remedy if there is none.
pub(crate) async fn get(cluster: &Cluster, peer: &str) -> Result<String> {
    find(cluster, peer).await?.with_context(|| {
        format!(
            "{} has no tenant namespace for peer {peer}: check the cluster ID, or run `liqoctl peer` first",
            cluster.place()
        )
    })
}

/// Returns the namespace that a flag names, else the peer's tenant namespace.
///
/// # Errors
///
/// Returns an error with the remedy if there is none.
pub(crate) async fn named_or_default(
    cluster: &Cluster,
    global: &Global,
    peer: &str,
) -> Result<String> {
    match &global.namespace {
        Some(namespace) => Ok(namespace.clone()),
        None => get(cluster, peer).await,
    }
}

/// Returns the default name of the peer's tenant namespace.
pub(crate) fn default_name(peer: &str) -> String {
    format!("{TENANT_PREFIX}{peer}")
}

async fn read(cluster: &Cluster, peer: &str) -> Result<Option<Namespace>> {
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
            let read = cluster.get(&api, "namespace", &default_name(peer)).await?;
            read.into_iter().collect()
        }
        Err(error) => return Err(cluster.failed("list tenant namespaces")(error)),
    };
    choose(found, peer).map_err(|reason| anyhow!("{reason} (in {})", cluster.place()))
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
pub(crate) struct TenantNamespace<'a> {
    cluster: &'a Cluster,
    peer: &'a str,
    /// The namespace that is being deleted: its name, and the version from which a watch continues.
    blocking: RefCell<Option<(String, String)>>,
    /// The namespace in the response to the last write, until it is observed.
    written: RefCell<Option<Namespace>>,
    is_new: Cell<bool>,
}

impl<'a> TenantNamespace<'a> {
    /// Returns the step for a side of a peering.
    pub(crate) fn of(side: &'a Side) -> Self {
        Self::new(&side.cluster, &side.peer)
    }

    /// Returns the step for the peer with this cluster ID.
    pub(crate) fn new(cluster: &'a Cluster, peer: &'a str) -> Self {
        Self {
            cluster,
            peer,
            blocking: RefCell::default(),
            written: RefCell::default(),
            is_new: Cell::default(),
        }
    }

    /// Returns whether this step has created the namespace, so that it contains no object of an earlier peering.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new.get()
    }

    /// Returns the namespace that was just written, else reads it.
    async fn current(&self) -> Result<Option<Namespace>> {
        let written = self.written.take();
        // A webhook may have removed the labels.
        let is_labelled =
            |it: &Namespace| tenant_namespace::peer_of(&it.metadata) == Some(self.peer);
        if let Some(namespace) = written.filter(is_labelled) {
            return Ok(Some(namespace));
        }
        self.is_new.set(false);
        read(self.cluster, self.peer).await
    }
}

impl Step for TenantNamespace<'_> {
    type Desired = ();
    type Output = String;

    fn lines(&self) -> Lines {
        Lines {
            scope: self.cluster.side,
            apply: lines(
                "Ensuring tenant namespace",
                "Tenant namespace correctly ensured",
            ),
            wait: None,
            goal: "creating the tenant namespace",
        }
    }

    async fn observe(&self, (): &()) -> Result<State<String>> {
        let Some(namespace) = self.current().await? else {
            return Ok(State::Pending);
        };
        let name = namespace.name_any();
        if namespace.metadata.deletion_timestamp.is_none() {
            return Ok(State::Ready(name));
        }
        let version = namespace.resource_version().unwrap_or_default();
        *self.blocking.borrow_mut() = Some((name.clone(), version));
        Ok(State::Blocked(format!(
            "namespace {name} in {} is still being deleted",
            self.cluster.place()
        )))
    }

    async fn apply(&self, (): &()) -> Result<()> {
        let api = Api::<Namespace>::all(self.cluster.client.clone());
        let manifest = self.cluster.with_metadata(manifest(self.peer));
        let created = self.cluster.create(&api, &manifest).await;
        self.is_new.set(created.is_ok());
        let written = match created {
            Ok(namespace) => namespace,
            // It exists without the labels, or another process has just created it. A user who may not create it may
            // still label it.
            Err(error) if failure::is_conflict(&error) || failure::is_forbidden(&error) => {
                self.cluster.apply(&api, manifest).await?
            }
            Err(error) => return Err(self.cluster.failed("create the tenant namespace")(error)),
        };
        *self.written.borrow_mut() = Some(written);
        Ok(())
    }

    /// Kubernetes deletes a namespace after some seconds, so this is a watch.
    async fn changed(&self) {
        let blocking = self.blocking.take();
        let event = async {
            let (name, version) = blocking?;
            let api = Api::<Namespace>::all(self.cluster.client.clone());
            let params = WatchParams::default().fields(&format!("metadata.name={name}"));
            let events = api.watch(&params, &version).await.ok()?;
            std::pin::pin!(events).next().await
        };
        match tokio::time::timeout(REFRESH, event).await {
            Ok(Some(Ok(_))) => {}
            // The user may not watch namespaces, or the connection is lost.
            Ok(None | Some(Err(_))) | Err(_) => tokio::time::sleep(PERIOD).await,
        }
    }
}

/// Returns the namespace to create for `peer`.
pub(crate) fn manifest(peer: &str) -> Value {
    const PRIVILEGED: &str = "privileged";
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": default_name(peer),
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

fn choose(mut found: Vec<Namespace>, peer: &str) -> Result<Option<Namespace>, String> {
    match found.as_slice() {
        [] | [_] => Ok(found.pop()),
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

        assert_eq!(choose(Vec::new(), "milan"), Ok(None));
        assert_eq!(
            choose(found[..1].to_vec(), "milan"),
            Ok(Some(namespace("a")))
        );
        assert!(
            choose(found.to_vec(), "milan")
                .unwrap_err()
                .contains("(a, b)")
        );
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
