//! The pod at the provider that a request is about.

use super::refusal::Refusal;
use super::route::PodName;
use crate::settings::Settings;
use crate::workload::Namespaces;
use control_api::NamespaceMap;
use control_runtime::{Cache, Cluster, Key};
use k8s_openapi::api::core::v1::Pod;

/// Returns the key of the remote pod of a pod of the Node.
///
/// # Errors
///
/// Returns a refusal unless the pod is one of this Node, and the remote pod has the markers of this Node.
pub(crate) fn remote(cache: &Cache, settings: &Settings, pod: &PodName) -> Result<Key, Refusal> {
    let PodName {
        namespace,
        name,
        uid,
    } = pod;
    let local = cache.local::<Pod>(&Key::new(&**namespace, &**name));
    let local = local.filter(|it| settings.is_of_node(it));
    let local = local.filter(|it| uid.is_none() || it.metadata.uid == *uid);
    if local.is_none() {
        return Err(Refusal::not_found(format!(
            "pod does not exist: {namespace}/{name} on node {}",
            settings.node
        )));
    }
    let namespaces = Namespaces::new(cache.local::<NamespaceMap>(&settings.namespace_map()));
    let Some(remote) = namespaces.remote(namespace) else {
        return Err(Refusal::not_found(format!(
            "namespace {namespace} is not offloaded to {}: see the status of its NamespaceOffloading",
            settings.provider
        )));
    };
    let key = Key::new(remote, &**name);
    let objects = cache.objects::<Pod>(&Cluster::remote(&settings.provider));
    if !objects
        .get(&key)
        .is_some_and(|it| settings.is_own(&it.metadata))
    {
        return Err(Refusal::not_found(format!(
            "pod {namespace}/{name} does not run at {} yet, or no longer",
            settings.provider
        )));
    }

    Ok(key)
}
