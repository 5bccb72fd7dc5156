//! The objects of a pod at the provider.

use super::namespaces::is_listed;
use crate::pod::kept::KeptShadowPod;
use crate::settings::Settings;
use control_runtime::{Cache, Cluster, Key};
use k8s_openapi::api::core::v1::Pod;

/// The objects of one pod at the provider.
#[derive(Clone, Copy)]
pub(super) struct Counterparts<'a> {
    /// The ShadowPod of this name, which may be of another Node.
    pub(super) shadow: Option<&'a KeptShadowPod>,
    /// The remote pod, with the labels of this Node.
    pub(super) pod: Option<&'a Pod>,
}

impl<'a> Counterparts<'a> {
    /// Returns the objects with a name at the provider; `None` before the provider has listed its objects.
    pub(super) fn find(settings: &Settings, remote: &Key, cache: &'a Cache) -> Option<Self> {
        if !is_listed(settings, &remote.namespace, cache) {
            return None;
        }
        let provider = Cluster::remote(&settings.provider);
        let pod = cache.objects::<Pod>(&provider).get(remote);

        Some(Self {
            shadow: cache.objects::<KeptShadowPod>(&provider).get(remote),
            pod: pod.filter(|it| settings.is_own(&it.metadata)),
        })
    }
}
