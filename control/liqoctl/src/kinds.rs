//! The objects that are looked for by the label of their peer.

use crate::cluster::Cluster;
use anyhow::{Result, bail};
use control_api::labels;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// A kind of object in tenant namespaces.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
{
}

/// Returns the selector of what is about a peer.
pub(crate) fn about(peer: &str) -> String {
    format!("{}={peer}", labels::REMOTE_CLUSTER_ID)
}

/// Returns the objects of a kind about a peer, by name.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(crate) async fn all<K: Kind>(cluster: &Cluster, namespace: &str, peer: &str) -> Result<Vec<K>> {
    let api = Api::<K>::namespaced(cluster.client.clone(), namespace);
    let mut found = cluster.list(&api, &K::plural(&()), &about(peer)).await?;
    found.sort_by_key(|object| object.name_any());
    Ok(found)
}

/// Returns the object of a kind about a peer, or none.
///
/// # Errors
///
/// Returns an error if there are several, or if the API server fails.
pub(crate) async fn one<K: Kind>(
    cluster: &Cluster,
    namespace: &str,
    peer: &str,
) -> Result<Option<K>> {
    let mut found: Vec<K> = all(cluster, namespace, peer).await?;
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
