//! Work items of the namespace controller.

use control_runtime::Key;
use std::fmt;

/// Work item of the namespace controller.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The NamespaceOffloading of a namespace: its finalizer, label, bindings and status.
    Offloading(String),
    /// The entry of a namespace in the NamespaceMap of a tenant namespace.
    Entry {
        /// The tenant namespace of the provider.
        tenant: String,
        /// The namespace that may be offloaded.
        namespace: String,
    },
    /// The NamespaceMap of a tenant namespace, which ends with the VirtualNodes.
    Map(String),
    /// The namespaces of a consumer's NamespaceMap.
    Remote(Key),
}

impl WorkItem {
    /// Returns the kind, for metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Offloading(_) => "namespace_offloading",
            Self::Entry { .. } => "namespace_map_entry",
            Self::Map(_) => "namespace_map",
            Self::Remote(_) => "remote_namespaces",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind())?;
        match self {
            Self::Offloading(namespace) => f.write_str(namespace),
            Self::Entry { tenant, namespace } => write!(f, "{tenant}/{namespace}"),
            Self::Map(tenant) => f.write_str(tenant),
            Self::Remote(key) => write!(f, "{key}"),
        }
    }
}
