//! The objects of one kind, without what nobody here reads.

use crate::network::kind::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// An object that can be kept.
pub(crate) trait Stored:
    kube::Resource<DynamicType = ()>
    + DeserializeOwned
    + Clone
    + PartialEq
    + fmt::Debug
    + Send
    + Sync
    + 'static
{
    /// Drops what nobody reads, above all what changes without meaning anything here.
    fn prune(&mut self) {}
}

/// The objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Store<T> {
    objects: BTreeMap<Key, Arc<T>>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
        }
    }
}

impl<T> Store<T> {
    /// Returns an object.
    pub(crate) fn get(&self, key: &Key) -> Option<&T> {
        self.objects.get(key).map(Arc::as_ref)
    }

    /// Returns whether an object is there.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Returns all objects, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.objects.iter().map(|(key, object)| (key, &**object))
    }

    /// Returns the objects of a namespace.
    pub(crate) fn within(&self, namespace: &str) -> impl Iterator<Item = (&Key, &T)> {
        let first = Key::new(namespace, "");
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(key, object)| (key, &**object))
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }
}

impl<T: Stored> Store<T> {
    /// Puts an object, and returns whether it is of the type that is stored here.
    pub(crate) fn put(&mut self, key: &Key, object: Arc<dyn Any + Send + Sync>) -> bool {
        let Ok(object) = object.downcast::<T>() else {
            return false;
        };
        self.objects.insert(key.clone(), object);

        true
    }

    /// Returns the metadata of an object.
    pub(crate) fn meta(&self, key: &Key) -> Option<&ObjectMeta> {
        self.objects.get(key).map(|object| object.meta())
    }
}

/// Clears the fields of an object that nothing reads.
pub(crate) fn keep<T: Stored>(mut object: T) -> T {
    prune_metadata(object.meta_mut());
    object.prune();
    object
}

fn prune_metadata(meta: &mut ObjectMeta) {
    meta.resource_version = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
