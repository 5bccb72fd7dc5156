//! Lists of the objects of a resource, and their changes, as streams that never end.

use crate::object::{Cluster, Key, Resource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use std::fmt;

pub use failure::{shortened, spread};
pub use selector::Selector;
pub use stream::{Siblings, Target, stream};

mod failure;
mod selector;
mod stream;

/// An object of a list or an event, decoded once.
pub trait Watched: DeserializeOwned + Clone + Send + 'static {
    /// Returns its metadata.
    fn metadata(&self) -> &ObjectMeta;
}

/// Identity of a watch: two plans that name the same watch share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchId {
    /// Cluster that is watched.
    pub cluster: Cluster,
    /// Resource that is watched.
    pub resource: Resource,
    /// Namespace; `None` for all namespaces.
    pub namespace: Option<String>,
    /// Which objects are watched.
    pub selector: Selector,
}

impl WatchId {
    /// Returns whether the watch reports the object of this key, if the object has the selected
    /// labels.
    pub fn covers(&self, key: &Key) -> bool {
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == key.namespace)
            && (self.selector.name.as_ref()).is_none_or(|name| *name == key.name)
    }
}

impl fmt::Display for WatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.resource)?;
        if let Some(name) = &self.selector.name {
            write!(f, "/{name}")?;
        }
        if let Some(node) = &self.selector.node {
            write!(f, " of node {node}")?;
        }
        if !self.selector.terms.is_empty() {
            write!(f, " with {}", self.selector.terms)?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " in namespace {namespace}")?;
        }
        if self.cluster != Cluster::Local {
            write!(f, " of cluster {}", self.cluster)?;
        }
        Ok(())
    }
}

/// An event of a watch, with objects of type `O`.
#[derive(Debug)]
pub enum Signal<O> {
    /// A list begins. Objects that it does not contain were deleted.
    ListBegins,
    /// The list is complete.
    ListEnds,
    /// An object is in a list, or was created or changed.
    Object {
        /// The object, as the watch converts it.
        object: O,
        /// Whether the object was in a list.
        is_listed: bool,
    },
    /// The object with this UID was deleted, at this version.
    Deleted {
        /// Name of the object.
        key: Key,
        /// UID of the object.
        uid: String,
        /// Version of the deletion; `None` if it is not a number.
        version: Option<u64>,
    },
    /// There is no change before a version, of which the server informs about every minute.
    Bookmark,
    /// The server's history went back: all watches of the cluster must list again.
    WentBack,
    /// The server refuses the watch: the resource or the right is missing.
    Refused(String),
    /// A request failed, and is repeated.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_covers_its_namespace_and_name() {
        let mut id = WatchId {
            cluster: Cluster::Local,
            resource: Resource::of::<k8s_openapi::api::core::v1::Secret>(),
            namespace: None,
            selector: Selector::default(),
        };
        assert!(id.covers(&Key::new("a", "b")));

        id.namespace = Some("liqo".into());
        assert!(!id.covers(&Key::new("a", "b")));
        id.selector.name = Some("keys".into());
        assert!(id.covers(&Key::new("liqo", "keys")));
        assert!(!id.covers(&Key::new("liqo", "b")));
        assert_eq!(id.to_string(), "secrets/keys in namespace liqo");
        id.selector.terms = "type=Opaque".into();
        assert_eq!(id.selector.fields(), "metadata.name=keys,type=Opaque");
    }
}
