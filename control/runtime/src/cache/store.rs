//! The objects of one resource in one cluster, with their indexes.

use crate::entry::{Entry, Kept};
use crate::object::Key;
use crate::registration::IndexValues;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

type Indexes = [(&'static str, IndexValues)];

#[derive(Debug, Default)]
pub(super) struct Store {
    entries: BTreeMap<Key, Entry>,
    /// Keys by name of the index and value.
    indexes: BTreeMap<(&'static str, String), BTreeSet<Key>>,
}

impl Store {
    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Puts an object; returns its state before.
    pub(super) fn put(&mut self, entry: Entry, indexes: &Indexes) -> Option<Entry> {
        let old = self.remove(&entry.key, indexes);
        for (index, values) in indexes {
            for value in values(&entry) {
                let keys = self.indexes.entry((index, value)).or_default();
                keys.insert(entry.key.clone());
            }
        }
        self.entries.insert(entry.key.clone(), entry);

        old
    }

    pub(super) fn remove(&mut self, key: &Key, indexes: &Indexes) -> Option<Entry> {
        let old = self.entries.remove(key)?;
        for (index, values) in indexes {
            for value in values(&old) {
                let id = (*index, value);
                let Some(keys) = self.indexes.get_mut(&id) else {
                    continue;
                };
                keys.remove(key);
                if keys.is_empty() {
                    self.indexes.remove(&id);
                }
            }
        }

        Some(old)
    }

    pub(super) fn all(&self) -> Box<dyn Iterator<Item = &Entry> + '_> {
        Box::new(self.entries.values())
    }

    pub(super) fn within(&self, namespace: &str) -> Box<dyn Iterator<Item = &Entry> + '_> {
        let first = Key::new(namespace, "");
        let namespace = namespace.to_owned();
        let entries = self.entries.range(first..);
        let entries = entries.take_while(move |(key, _)| key.namespace == namespace);
        Box::new(entries.map(|(_, entry)| entry))
    }
}

/// The objects of one type in one cluster.
#[derive(Debug)]
pub struct Objects<'a, T> {
    store: Option<&'a Store>,
    marker: PhantomData<fn() -> T>,
}

impl<'a, T: Kept> Objects<'a, T> {
    pub(super) fn new(store: Option<&'a Store>) -> Self {
        Self {
            store,
            marker: PhantomData,
        }
    }

    /// Returns an object.
    pub fn get(&self, key: &Key) -> Option<&'a T> {
        self.store?.get(key)?.get()
    }

    /// Returns the UID of an object.
    pub fn uid(&self, key: &Key) -> Option<&'a str> {
        self.store?.get(key).map(|entry| entry.uid.as_str())
    }

    /// Returns all objects, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&'a Key, &'a T)> + use<'a, T> {
        let entries = self.store.into_iter().flat_map(Store::all);
        entries.filter_map(|entry| Some((&entry.key, entry.get()?)))
    }

    /// Returns all objects, by key, shared with the cache.
    pub fn shared(&self) -> impl Iterator<Item = Arc<T>> + use<'a, T> {
        let entries = self.store.into_iter().flat_map(Store::all);
        entries.filter_map(|entry| entry.shared().downcast().ok())
    }

    /// Returns the objects of a namespace, by name.
    pub fn within(&self, namespace: &str) -> impl Iterator<Item = (&'a Key, &'a T)> + use<'a, T> {
        let entries = self.store.map(|store| store.within(namespace));
        let entries = entries.into_iter().flatten();
        entries.filter_map(|entry| Some((&entry.key, entry.get()?)))
    }

    /// Returns the objects with this value in an index, by key.
    pub fn indexed(
        &self,
        index: &'static str,
        value: &str,
    ) -> impl Iterator<Item = (&'a Key, &'a T)> + use<'a, T> {
        let store = self.store;
        let keys = store.and_then(|store| store.indexes.get(&(index, value.to_owned())));
        let keys = keys.into_iter().flatten();
        keys.filter_map(move |key| Some((key, store?.get(key)?.get()?)))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.store.map_or(0, |store| store.entries.len())
    }

    /// Returns whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
