//! Work items of reflection.

use super::kind::Kind;
use control_api::IP;
use control_runtime::{Key, Resource};
use k8s_openapi::api::core::v1::Service;
use std::fmt;

/// Part of reflection that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// Watches of a namespace of this cluster.
    Namespace(String),
    /// Reflected object of a kind, by the name of the object in this cluster.
    Object(Kind, Key),
    /// Status of an object of this cluster, by its name.
    Status(Kind, Key),
}

impl WorkItem {
    /// Returns the namespace of this cluster.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::Object(_, key) | Self::Status(_, key) => &key.namespace,
        }
    }

    /// Returns whether the item depends on objects of a resource.
    pub(super) fn is_of(&self, resource: &Resource) -> bool {
        let (Self::Object(kind, _) | Self::Status(kind, _)) = self else {
            return true;
        };
        let further = [Resource::of::<Service>(), Resource::of::<IP>()];
        let is_further = *kind == Kind::EndpointSlice && further.contains(resource);
        kind.local() == *resource || kind.remote() == *resource || is_further
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Object(Kind::Service, _) => "service",
            Self::Object(Kind::EndpointSlice, _) => "endpointslice",
            Self::Object(Kind::Ingress, _) => "ingress",
            Self::Object(Kind::ConfigMap, _) => "configmap",
            Self::Object(Kind::Secret, _) => "secret",
            Self::Object(Kind::Other(other), _) => &other.name,
            Self::Status(..) => "status",
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Object(kind, key) => write!(f, "{kind} {key}"),
            Self::Status(kind, key) => write!(f, "status of {kind} {key}"),
        }
    }
}
