//! The objects of one resource in one cluster, with their indexes.

use crate::entry::Entry;
use crate::registration::Index;
use control_client::object::Key;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

/// Number of a watch within a cache.
pub(super) type WatchNumber = u32;

#[derive(Debug, Default)]
pub(super) struct Store {
    /// Objects are listed in order, which leaves the nodes of the tree half empty, so its slots are small.
    entries: BTreeMap<Arc<Key>, Box<Stored>>,
    /// Names of indexes, values and keys. Most values have one key, so there is one set for all values.
    indexes: BTreeSet<(&'static str, String, Arc<Key>)>,
}

#[derive(Debug)]
struct Stored {
    entry: Entry,
    /// Watches that report the object, usually one.
    watches: Vec<WatchNumber>,
}

impl Store {
    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        Some(&self.entries.get(key)?.entry)
    }

    /// Puts an object that these watches report; returns its state before.
    pub(super) fn put(
        &mut self,
        entry: Entry,
        watches: &[WatchNumber],
        indexes: &[Index],
    ) -> Option<Entry> {
        let known = self.entries.get_key_value(&entry.key);
        let key = known.map_or_else(|| Arc::new(entry.key.clone()), |(key, _)| Arc::clone(key));
        let old = known.map(|(_, stored)| values(&stored.entry, indexes));
        // Most changes leave the values of the indexes as they are.
        let (old, new) = (old.unwrap_or_default(), values(&entry, indexes));
        for (index, value) in old.difference(&new) {
            let id = (*index, value.clone(), Arc::clone(&key));
            self.indexes.remove(&id);
        }
        for (index, value) in new.difference(&old) {
            let id = (*index, value.clone(), Arc::clone(&key));
            self.indexes.insert(id);
        }
        let replaced = if let Some(stored) = self.entries.get_mut(&key) {
            Some(std::mem::replace(&mut stored.entry, entry))
        } else {
            let watches = Vec::with_capacity(1);
            let stored = Box::new(Stored { entry, watches });
            self.entries.insert(Arc::clone(&key), stored);
            None
        };
        for watch in watches {
            self.report(&key, *watch);
        }

        replaced
    }

    /// Notes that a watch reports an object.
    pub(super) fn report(&mut self, key: &Key, watch: WatchNumber) {
        if let Some(stored) = self.entries.get_mut(key)
            && !stored.watches.contains(&watch)
        {
            stored.watches.push(watch);
        }
    }

    /// Returns the watches that report an object.
    pub(super) fn watches(&self, key: &Key) -> &[WatchNumber] {
        let stored = self.entries.get(key);
        stored.map_or(&[], |it| it.watches.as_slice())
    }

    /// Notes that a watch no longer reports an object. Returns whether no other watch does.
    pub(super) fn retract(&mut self, key: &Key, watch: WatchNumber) -> bool {
        self.entries.get_mut(key).is_some_and(|stored| {
            stored.watches.retain(|it| *it != watch);
            stored.watches.is_empty()
        })
    }

    /// Returns the keys of the objects that a watch of a namespace, or of all namespaces, reports.
    pub(super) fn reported(&self, watch: WatchNumber, namespace: Option<&str>) -> Vec<Key> {
        let first = Key::new(namespace.unwrap_or_default(), "");
        let entries = self.entries.range::<Key, _>(first..);
        let entries = entries.take_while(|(key, _)| namespace.is_none_or(|it| it == key.namespace));
        let reported = entries.filter(|(_, stored)| stored.watches.contains(&watch));
        reported.map(|(key, _)| Key::clone(key)).collect()
    }

    pub(super) fn remove(&mut self, key: &Key, indexes: &[Index]) -> Option<Entry> {
        let (key, old) = self.entries.remove_entry(key)?;
        for (index, value) in values(&old.entry, indexes) {
            let id = (index, value, Arc::clone(&key));
            self.indexes.remove(&id);
        }

        Some(old.entry)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().map(|stored| &stored.entry)
    }

    fn within(&self, namespace: &str) -> impl Iterator<Item = &Entry> + use<'_> {
        let first = Key::new(namespace, "");
        let namespace = namespace.to_owned();
        let entries = self.entries.range::<Key, _>(first..);
        let entries = entries.take_while(move |(key, _)| key.namespace == namespace);
        entries.map(|(_, stored)| &stored.entry)
    }
}

/// Returns the values of an object in all indexes.
fn values(entry: &Entry, indexes: &[Index]) -> BTreeSet<(&'static str, String)> {
    let of_index = |index: &Index| {
        let values = (index.values)(entry);
        let name = index.name;
        values.into_iter().map(move |value| (name, value))
    };

    indexes.iter().flat_map(of_index).collect()
}

/// The objects of one type in one cluster.
#[derive(Debug)]
pub struct Objects<'a, T> {
    store: Option<&'a Store>,
    marker: PhantomData<fn() -> T>,
}

impl<'a, T: Any + Send + Sync> Objects<'a, T> {
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
        let first = (index, value.to_owned(), Arc::default());
        let value = value.to_owned();
        let ids = store.map(|store| store.indexes.range(first..));
        let ids = ids.into_iter().flatten();
        let ids = ids.take_while(move |(name, found, _)| *name == index && *found == value);
        ids.filter_map(move |(_, _, key)| Some((&**key, store?.get(key)?.get()?)))
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
