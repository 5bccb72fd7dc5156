//! The objects of a peer, which its label selects.

use crate::cluster::Cluster;
use anyhow::{Result, bail};
use control_api::labels;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A kind of object in tenant namespaces.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + 'static
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + 'static
{
}

/// Returns the label selector of the objects of a peer.
pub(crate) fn selector(peer: &str) -> String {
    format!("{}={peer}", labels::REMOTE_CLUSTER_ID)
}

/// Returns the objects of a peer, sorted by name.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn list<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    peer: &str,
) -> Result<Vec<K>> {
    let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
    let mut found = cluster.list(&api, &K::plural(&()), &selector(peer)).await?;
    found.sort_by_key(|object| object.name_any());
    Ok(found)
}

/// Returns the object of a peer, or none.
///
/// # Errors
///
/// Returns an error if there are several, or if the API server fails.
pub(crate) async fn find<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    peer: &str,
) -> Result<Option<K>> {
    let mut found: Vec<K> = list(cluster, namespace, peer).await?;
    if found.len() > 1 {
        let names: Vec<String> = found.iter().map(|object| object.name_any()).collect();
        let kind = K::kind(&());
        bail!(
            "{} has several of kind {kind} for peer {peer} in namespace {namespace} ({}): delete all but one",
            cluster.place(),
            names.join(", "),
        );
    }
    Ok(found.pop())
}
