//! Work items of reflection.

use super::kind::Kind;
use control_runtime::Key;
use std::fmt;

/// Part of reflection that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// Watches of a namespace of this cluster.
    Namespace(String),
    /// Reflected object of a kind, by the name of the object in this cluster.
    Object(Kind, Key),
}

impl WorkItem {
    /// Returns the namespace of this cluster.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::Object(_, key) => &key.namespace,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Object(Kind::Service, _) => "service",
            Self::Object(Kind::EndpointSlice, _) => "endpointslice",
            Self::Object(Kind::ConfigMap, _) => "configmap",
            Self::Object(Kind::Secret, _) => "secret",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Object(kind, key) => write!(f, "{kind} {key}"),
        }
    }
}
