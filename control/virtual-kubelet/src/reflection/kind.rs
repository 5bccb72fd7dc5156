//! The kinds of this cluster that are reflected.

use super::configmap;
use super::other::Other;
use crate::pod::forge::reflected_config_map_name;
use control_api::ShadowEndpointSlice;
use control_runtime::{Key, Resource};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::Ingress;
use std::fmt;

/// A kind of objects that are reflected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Service.
    Service,
    /// EndpointSlice, as a ShadowEndpointSlice.
    EndpointSlice,
    /// Ingress.
    Ingress,
    /// ConfigMap.
    ConfigMap,
    /// Secret, except those with tokens of pods.
    Secret,
    /// A kind that a flag names.
    Other(&'static Other),
}

impl Kind {
    /// All kinds but those that flags name.
    pub(crate) const ALL: [Self; 5] = [
        Self::Service,
        Self::EndpointSlice,
        Self::Ingress,
        Self::ConfigMap,
        Self::Secret,
    ];

    /// Returns the resource in this cluster.
    pub(super) fn local(self) -> Resource {
        match self {
            Self::Service => Resource::of::<Service>(),
            Self::EndpointSlice => Resource::of::<EndpointSlice>(),
            Self::Ingress => Resource::of::<Ingress>(),
            Self::ConfigMap => Resource::of::<ConfigMap>(),
            Self::Secret => Resource::of::<Secret>(),
            Self::Other(other) => other.resource(),
        }
    }

    /// Returns the resource at the provider.
    pub(super) fn remote(self) -> Resource {
        match self {
            Self::EndpointSlice => Resource::of::<ShadowEndpointSlice>(),
            Self::Service | Self::Ingress | Self::ConfigMap | Self::Secret | Self::Other(_) => {
                self.local()
            }
        }
    }

    /// Returns whether a flag names the kind.
    pub(super) fn is_other(self) -> bool {
        matches!(self, Self::Other(_))
    }

    /// Returns whether the provider's status is written to the objects of this cluster.
    pub(crate) fn has_status(self) -> bool {
        matches!(self, Self::Other(other) if other.has_status)
    }

    /// Returns the name of the reflected object in a namespace of the provider.
    pub(super) fn remote_key(self, namespace: &str, name: &str, origin: &str) -> Key {
        match self {
            Self::ConfigMap => Key::new(namespace, reflected_config_map_name(name, origin)),
            Self::Service | Self::EndpointSlice | Self::Ingress | Self::Secret | Self::Other(_) => {
                Key::new(namespace, name)
            }
        }
    }

    /// Returns the name of the object of a reflected one in a namespace of this cluster.
    pub(super) fn local_key(self, namespace: &str, name: &str, origin: &str) -> Key {
        match self {
            Self::ConfigMap => Key::new(namespace, configmap::local_name(name, origin)),
            Self::Service | Self::EndpointSlice | Self::Ingress | Self::Secret | Self::Other(_) => {
                Key::new(namespace, name)
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::Ingress => "Ingress",
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Other(other) => &other.name,
        })
    }
}
