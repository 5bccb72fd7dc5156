//! Work items of the offloading controller.

use control_runtime::Key;
use std::fmt;

/// A work item, with the namespace and the name of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The Quota of a ResourceSlice of a consumer.
    Quota(Key),
    /// The VirtualNode of a ResourceSlice of this cluster.
    VirtualNode(Key),
    /// Defaults, status and finalizer of a VirtualNode.
    Status(Key),
    /// The RoleBinding of all virtual kubelets in a namespace.
    KubeletBinding(Key),
    /// The watches of a tenant namespace. Only the namespace of the key counts.
    Watches(Key),
    /// The request of a virtual kubelet for its serving certificate.
    ServingCertificate {
        /// The VirtualNode whose ServiceAccount has sent it.
        node: Key,
        /// Name of the CertificateSigningRequest.
        request: String,
    },
}

impl WorkItem {
    /// Returns the kind, for metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Quota(_) => "quota",
            Self::VirtualNode(_) => "virtual_node",
            Self::Status(_) => "virtual_node_status",
            Self::KubeletBinding(_) => "virtual_kubelet_binding",
            Self::Watches(_) => "virtual_kubelet_watches",
            Self::ServingCertificate { .. } => "serving_certificate",
        }
    }

    /// Returns the object that the item is about.
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Quota(key)
            | Self::VirtualNode(key)
            | Self::Status(key)
            | Self::KubeletBinding(key)
            | Self::Watches(key)
            | Self::ServingCertificate { node: key, .. } => key,
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key())?;
        match self {
            Self::ServingCertificate { request, .. } => write!(f, " {request}"),
            Self::Quota(_)
            | Self::VirtualNode(_)
            | Self::Status(_)
            | Self::KubeletBinding(_)
            | Self::Watches(_) => Ok(()),
        }
    }
}
