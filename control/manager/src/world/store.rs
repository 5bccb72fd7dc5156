//! The objects of one kind, without what nobody here reads.

use crate::kind::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// An object that can be kept.
pub(crate) trait Stored: kube::Resource + DeserializeOwned + Clone + PartialEq {
    /// Drops what nobody reads, above all what changes without meaning anything here.
    fn strip(&mut self) {}
}

/// The objects of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Store<T> {
    objects: BTreeMap<Key, T>,
}

/// An object does not have the form of its kind.
#[derive(Debug, thiserror::Error)]
#[error("the object cannot be read")]
pub(crate) struct Unreadable(#[from] serde_json::Error);

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
        self.objects.get(key)
    }

    /// Returns whether an object is there.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.objects.contains_key(key)
    }

    /// Returns all objects, by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.objects.iter()
    }

    /// Returns the objects of a namespace.
    pub(crate) fn within(&self, namespace: &str) -> impl Iterator<Item = (&Key, &T)> {
        let first = Key::new(namespace, "");
        self.objects
            .range(first..)
            .take_while(move |(key, _)| key.namespace == namespace)
    }

    /// Forgets an object.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.objects.remove(key);
    }
}

impl<T: Stored> Store<T> {
    /// Keeps an object, unless a newer state of it is known; returns whether anything has changed.
    ///
    /// What a list tells (`is_listed`) is true, even if the versions went back because the cluster was
    /// restored from a backup.
    ///
    /// # Errors
    ///
    /// Returns [`Unreadable`] if it does not have the form of its kind; then an older state is kept.
    pub(crate) fn put(
        &mut self,
        object: DynamicObject,
        is_listed: bool,
    ) -> Result<bool, Unreadable> {
        let mut object: T = serde_json::from_value(serde_json::to_value(object)?)?;
        strip_metadata(object.meta_mut());
        object.strip();
        let key = key_of(object.meta());
        if let Some(old) = self.objects.get(&key) {
            if !is_listed && is_older(object.meta(), old.meta()) {
                return Ok(false);
            }
            let version = object.meta().resource_version.clone();
            object.meta_mut().resource_version = old.meta().resource_version.clone();
            let is_equal = object == *old;
            object.meta_mut().resource_version = version;
            if is_equal {
                self.objects.insert(key, object);
                return Ok(false);
            }
        }
        self.objects.insert(key, object);

        Ok(true)
    }

    /// Returns the metadata of an object.
    pub(crate) fn meta(&self, key: &Key) -> Option<&ObjectMeta> {
        self.objects.get(key).map(kube::Resource::meta)
    }
}

/// Returns the key that an object's metadata tell.
pub(crate) fn key_of(meta: &ObjectMeta) -> Key {
    Key {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// A watch may tell what a write's answer has told before, and what was true before that.
///
/// Resource versions of one object can be compared as numbers (KEP-5504).
fn is_older(new: &ObjectMeta, old: &ObjectMeta) -> bool {
    let version = |meta: &ObjectMeta| meta.resource_version.as_ref()?.parse::<u128>().ok();
    let versions = version(new).zip(version(old));

    new.uid == old.uid && versions.is_some_and(|(new, old)| new < old)
}

fn strip_metadata(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
