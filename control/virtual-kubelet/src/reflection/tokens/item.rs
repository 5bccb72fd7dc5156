//! Work items of tokens.

use control_runtime::Key;
use std::fmt;

/// Part of the tokens that is compared with its desired state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TokenItem {
    /// Watches of a namespace of this cluster.
    Namespace(String),
    /// Secret that a pod of this cluster needs.
    Pod(Key),
    /// Secret of the provider, which may no longer be needed.
    Secret(Key),
}

impl TokenItem {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Namespace(_) => "namespace",
            Self::Pod(_) => "pod",
            Self::Secret(_) => "secret",
        }
    }

    /// Returns the namespace of this cluster, or that of the provider for a Secret.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Namespace(namespace) => namespace,
            Self::Pod(key) | Self::Secret(key) => &key.namespace,
        }
    }
}

impl fmt::Display for TokenItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Pod(key) => write!(f, "pod {key}"),
            Self::Secret(key) => write!(f, "secret {key}"),
        }
    }
}
