//! Work items of the authentication controller.

use control_api::{ResourceSlice, Tenant};
use control_runtime::{Cluster, Key, Ref};
use std::fmt;

/// A work item, with the namespace and the name of its object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// The key of this cluster.
    ClusterKey,
    /// The watch of the Secrets of a namespace, which follows the rights of the manager.
    SecretWatch(String),
    /// A Secret with a nonce for a consumer.
    Nonce(Key),
    /// A Secret with the nonce of a provider.
    SignedNonce(Key),
    /// The Tenant of a consumer: its certificate and its rights.
    Tenant(Key),
    /// The credentials at a provider.
    Identity(Key),
    /// A ResourceSlice of this cluster, or of a consumer.
    ResourceSlice(Key),
    /// A Renew of a consumer.
    Renew(Key),
}

impl WorkItem {
    /// Returns the kind, for metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::ClusterKey => "cluster_key",
            Self::SecretWatch(_) => "secret_watch",
            Self::Nonce(_) => "nonce",
            Self::SignedNonce(_) => "signed_nonce",
            Self::Tenant(_) => "tenant",
            Self::Identity(_) => "identity",
            Self::ResourceSlice(_) => "resource_slice",
            Self::Renew(_) => "renew",
        }
    }

    /// Returns the object that the item is about.
    pub(crate) fn key(&self) -> Option<&Key> {
        match self {
            Self::ClusterKey | Self::SecretWatch(_) => None,
            Self::Nonce(key)
            | Self::SignedNonce(key)
            | Self::Tenant(key)
            | Self::Identity(key)
            | Self::ResourceSlice(key)
            | Self::Renew(key) => Some(key),
        }
    }
}

impl WorkItem {
    /// Returns the object that requests a certificate.
    pub(super) fn requester(&self) -> Option<Ref> {
        match self {
            Self::Tenant(key) => Some(Ref::of::<Tenant>(&Cluster::Local, key)),
            Self::ResourceSlice(key) => Some(Ref::of::<ResourceSlice>(&Cluster::Local, key)),
            Self::ClusterKey
            | Self::SecretWatch(_)
            | Self::Nonce(_)
            | Self::SignedNonce(_)
            | Self::Identity(_)
            | Self::Renew(_) => None,
        }
    }
}

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, self.key()) {
            (Self::SecretWatch(namespace), _) => write!(f, "{} {namespace}", self.kind()),
            (_, Some(key)) => write!(f, "{} {key}", self.kind()),
            (_, None) => f.write_str(self.kind()),
        }
    }
}
