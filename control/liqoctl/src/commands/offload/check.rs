//! Namespaces that cannot be offloaded. PURE.

use crate::cluster::Installation;
use crate::namespaces::Chosen;
use crate::progress;
use anyhow::{Result, bail};
use control_api::labels;
use kube::ResourceExt as _;

/// Namespaces of Kubernetes itself.
const SYSTEM: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Returns the namespaces that can be offloaded. Warns about others that only their labels select.
///
/// # Errors
///
/// Returns an error if the user has named another one, or if none is left.
pub(super) fn unprotected(
    chosen: Vec<Chosen>,
    installation: Option<&Installation>,
) -> Result<Vec<Chosen>> {
    let mut rest = Vec::new();
    for namespace in chosen {
        match obstacle(&namespace, installation) {
            None => rest.push(namespace),
            Some(reason) if namespace.is_named => {
                bail!("namespace {} cannot be offloaded: {reason}", namespace.name)
            }
            Some(reason) => {
                progress::warn(format_args!(
                    "namespace {} is left out: {reason}",
                    namespace.name
                ));
            }
        }
    }
    if rest.is_empty() {
        bail!("no other namespace is selected: change --ns-selector, or name a namespace");
    }
    Ok(rest)
}

/// Returns why a namespace cannot be offloaded, with the remedy, or none if it can.
fn obstacle(namespace: &Chosen, installation: Option<&Installation>) -> Option<String> {
    const CREATE: &str = "create a namespace for the workload, and offload that one";
    let name = namespace.name.as_str();
    if SYSTEM.contains(&name) {
        return Some(format!("it belongs to Kubernetes; {CREATE}"));
    }
    if installation.is_some_and(|it| it.namespace == name) {
        return Some(format!("Liqo is installed in it; {CREATE}"));
    }
    let object = namespace.object.as_ref()?;
    if object.labels().contains_key(labels::TENANT_NAMESPACE) {
        let peer = object.labels().get(labels::REMOTE_CLUSTER_ID);
        let peer = peer.map_or("a peer", String::as_str);
        return Some(format!(
            "it is the tenant namespace of {peer}, with the objects of the peering; {CREATE}"
        ));
    }
    let is_terminating = object.metadata.deletion_timestamp.is_some();
    is_terminating
        .then(|| "it is being deleted; wait until it is gone, and create it again".to_owned())
}
