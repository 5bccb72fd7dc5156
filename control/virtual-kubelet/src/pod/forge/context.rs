//! The virtual node's part in the ShadowPod.

use super::api_server::{ApiServerSupport, HomeApiServer};
use control_api::offloading::virtual_node::OffloadingPatch;

/// Values of the virtual node and its peering that a ShadowPod depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    /// Cluster ID of this cluster.
    pub(crate) origin: &'a str,
    /// Cluster ID of the provider.
    pub(crate) destination: &'a str,
    /// User as which the provider knows this virtual kubelet, if its certificate names one.
    pub(crate) creator: Option<&'a str>,
    /// Name of the Node that the pod is bound to.
    pub(crate) node_name: &'a str,
    /// Namespace of the provider that the pod's namespace is mapped to.
    pub(crate) namespace: &'a str,
    /// Changes that the VirtualNode requests, with the keys that are not reflected.
    pub(crate) patch: &'a OffloadingPatch,
    /// Access to the API server of this cluster for pods without the annotation `liqo.io/api-server-support`.
    pub(crate) api_server_support: ApiServerSupport,
    /// Address of the API server of this cluster.
    pub(crate) api_server: HomeApiServer<'a>,
    /// Repatriation that the pod's NamespaceOffloading requests.
    pub(crate) repatriation: Option<Repatriation>,
    /// Whether the provider applies ephemeral containers and resizes of a ShadowPod to its pod. Upstream's does not.
    pub(crate) applies_changes: bool,
}

/// Time after which pods of an unreachable virtual node are deleted, as tolerations that admission has given the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repatriation {
    /// The tolerations have no limit.
    Never,
    /// The tolerations end after this number of seconds.
    After(i64),
}

impl Repatriation {
    /// Returns the `tolerationSeconds` of the tolerations.
    pub(crate) fn toleration_seconds(self) -> Option<i64> {
        match self {
            Self::Never => None,
            Self::After(seconds) => Some(seconds),
        }
    }
}
