//! Objects of peerings whose finalizers no controller removes, because authentication is disabled.

use super::full_name;
use crate::cluster::Cluster;
use crate::manager;
use crate::objects::Kind;
use anyhow::Result;
use control_api::{NamespaceMap, NamespaceOffloading, Renew, ResourceSlice, Tenant, VirtualNode};
use kube::{Api, ResourceExt as _};

/// Returns the objects with finalizers of the controllers that the controller manager runs only with authentication. Liqo
/// is in `namespace`.
///
/// Without a controller manager, no remedy but a purge is left, which removes all finalizers.
///
/// # Errors
///
/// Returns an error if the API server fails.
pub(super) async fn without_controller(cluster: &Cluster, namespace: &str) -> Result<Vec<String>> {
    let manager = manager::find(cluster, namespace).await?;
    if manager.is_none_or(|manager| manager::has_authentication(&manager)) {
        return Ok(Vec::new());
    }
    let (tenants, slices, renews, nodes, maps, offloadings) = tokio::try_join!(
        finalized::<Tenant>(cluster),
        finalized::<ResourceSlice>(cluster),
        finalized::<Renew>(cluster),
        finalized::<VirtualNode>(cluster),
        finalized::<NamespaceMap>(cluster),
        finalized::<NamespaceOffloading>(cluster),
    )?;
    Ok([tenants, slices, renews, nodes, maps, offloadings].concat())
}

/// Returns the objects of a kind that have finalizers.
async fn finalized<K: Kind>(cluster: &Cluster) -> Result<Vec<String>> {
    let api = Api::<K>::all(cluster.client.clone());
    let found = cluster.list(&api, &K::plural(&()), "").await?;
    let found = found.iter().filter(|it| !it.finalizers().is_empty());
    let shown = found.map(|it| {
        let (kind, finalizers) = (K::kind(&()), it.finalizers().join(", "));
        format!("{kind} {} ({finalizers})", full_name(it))
    });
    Ok(shown.collect())
}
