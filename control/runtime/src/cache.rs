//! The objects of all clusters that this process follows.
//!
//! There is one form per resource, however many controllers register it. The cache is changed by
//! one task only; any other reads through a [`CacheReader`].

use crate::entry::{Entry, Kept};
use crate::object::{Cluster, Key, Ref, Resource};
use crate::registration::{Form, Registration};
use crate::watch::WatchId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

mod change;
mod reader;
mod store;

pub use change::Change;
pub(crate) use change::Changed;
pub use reader::CacheReader;
pub use store::Objects;

use store::Store;

/// Two registrations of a resource contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "registrations of {resource} keep {first} and {second}: use one type for a resource in a process"
)]
pub struct RegistrationError {
    /// Resource that is registered twice.
    pub resource: Box<Resource>,
    /// Type that the first registration keeps.
    pub first: &'static str,
    /// Type that the second registration keeps.
    pub second: &'static str,
}

/// Upper limits of what the cache keeps of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Number of objects.
    pub objects: usize,
    /// Sum of the lengths of the objects' JSON, in bytes.
    pub bytes: usize,
}

impl CacheLimits {
    /// Limits of the local cluster, which is trusted.
    pub const LOCAL: Self = Self {
        objects: usize::MAX,
        bytes: usize::MAX,
    };
    /// Limits of a peer.
    pub const REMOTE: Self = Self {
        objects: 100_000,
        bytes: 256 << 20,
    };
}

/// The objects of all clusters.
#[derive(Default)]
pub struct Cache {
    forms: BTreeMap<Resource, Arc<dyn Form>>,
    stores: BTreeMap<(Cluster, Resource), Store>,
    watches: BTreeMap<WatchId, Progress>,
    clusters: BTreeMap<Cluster, Usage>,
}

/// State of one watch.
#[derive(Debug, Default)]
struct Progress {
    /// Keys in the list that is in progress; `None` if none is.
    listed: Option<BTreeSet<Key>>,
    is_synced: bool,
    /// Highest version that this watch has reported.
    newest: Option<u64>,
    /// Keys of objects that requests have returned since the list began, which may be newer.
    answered: BTreeSet<Key>,
}

#[derive(Debug)]
struct Usage {
    limits: CacheLimits,
    objects: usize,
    bytes: usize,
}

impl Cache {
    /// Adds the form of a registration.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if another registration keeps the resource as another type.
    pub(crate) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<(), RegistrationError> {
        let resource = &registration.resource;
        if let Some(form) = self.forms.get(resource) {
            let (first, second) = (form.kept(), registration.form.kept());
            if first != second {
                return Err(RegistrationError {
                    resource: Box::new(resource.clone()),
                    first,
                    second,
                });
            }
            if form.indexes().len() >= registration.form.indexes().len() {
                return Ok(());
            }
        }
        self.forms
            .insert(resource.clone(), Arc::clone(&registration.form));

        Ok(())
    }

    pub(crate) fn form(&self, resource: &Resource) -> Option<&Arc<dyn Form>> {
        self.forms.get(resource)
    }

    pub(crate) fn add_cluster(&mut self, cluster: Cluster, limits: CacheLimits) {
        let usage = Usage {
            limits,
            objects: 0,
            bytes: 0,
        };
        self.clusters.entry(cluster).or_insert(usage).limits = limits;
    }

    /// Removes a cluster and its objects.
    pub(crate) fn remove_cluster(&mut self, cluster: &Cluster) -> Vec<Changed> {
        let watches: Vec<_> = self.watches.keys().cloned().collect();
        let of_cluster = watches.into_iter().filter(|id| id.cluster == *cluster);
        let changes = of_cluster.flat_map(|id| self.remove_watch(&id)).collect();
        self.clusters.remove(cluster);

        changes
    }

    pub(crate) fn add_watch(&mut self, id: WatchId) {
        self.watches.entry(id).or_default();
    }

    /// Removes a watch, and the objects that no other watch reports.
    pub(crate) fn remove_watch(&mut self, id: &WatchId) -> Vec<Changed> {
        if self.watches.remove(id).is_none() {
            return Vec::new();
        }
        let keys = self.covered(id);
        let orphans = keys.into_iter().filter(|key| !self.is_watched(id, key));
        let orphans: Vec<_> = orphans.collect();
        let removed = orphans.iter();
        removed
            .filter_map(|key| self.take(&id.cluster, &id.resource, key))
            .collect()
    }

    /// Starts a list: objects that are not put until [`end_list`](Self::end_list) were deleted.
    pub(crate) fn begin_list(&mut self, id: &WatchId) {
        if let Some(progress) = self.watches.get_mut(id) {
            progress.listed = Some(BTreeSet::new());
            progress.newest = None;
            progress.answered.clear();
        }
    }

    /// Ends a list, and removes what it did not contain.
    pub(crate) fn end_list(&mut self, id: &WatchId) -> Vec<Changed> {
        let Some(progress) = self.watches.get_mut(id) else {
            return Vec::new();
        };
        let Some(mut listed) = progress.listed.take() else {
            return Vec::new();
        };
        progress.is_synced = true;
        listed.append(&mut progress.answered);
        let keys = self.covered(id);
        let gone = keys.into_iter().filter(|key| !listed.contains(key));
        let gone: Vec<_> = gone.collect();
        gone.iter()
            .filter_map(|key| self.take(&id.cluster, &id.resource, key))
            .collect()
    }

    /// Puts an object that a watch reports; returns the change, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the limits of the cluster if the object would exceed them; it is not kept then.
    pub(crate) fn put_watched(
        &mut self,
        id: &WatchId,
        entry: Entry,
        is_listed: bool,
    ) -> Result<Option<Changed>, CacheLimits> {
        let Some(progress) = self.watches.get_mut(id) else {
            return Ok(None);
        };
        progress.newest = progress.newest.max(entry.version);
        let store = (self.stores).get(&(id.cluster.clone(), id.resource.clone()));
        let kept = store.and_then(|store| store.get(&entry.key));
        // A request may have returned a later state, or a later object of the same name. A list is
        // right otherwise, even if its versions are lower because etcd was restored.
        let is_comparable = if is_listed {
            progress.answered.contains(&entry.key)
        } else {
            kept.is_some_and(|kept| kept.uid == entry.uid)
        };
        if is_comparable && kept.is_some_and(|kept| entry.version < kept.version) {
            return Ok(None);
        }
        let (key, is_known) = (entry.key.clone(), kept.is_some());
        let put = self.put(&id.cluster, &id.resource, entry);
        // The keys of a list are limited like its objects.
        let progress = self.watches.get_mut(id);
        if (put.is_ok() || is_known)
            && let Some(listed) = progress.and_then(|progress| progress.listed.as_mut())
        {
            listed.insert(key);
        }

        put
    }

    /// Notes that a list contains an object that cannot be decoded. Its last form is kept.
    pub(crate) fn keep_listed(&mut self, id: &WatchId, key: &Key) {
        let progress = self.watches.get_mut(id);
        if let Some(listed) = progress.and_then(|progress| progress.listed.as_mut()) {
            listed.insert(key.clone());
        }
    }

    /// Puts the object that a request returned, unless a watch has reported a later state.
    ///
    /// # Errors
    ///
    /// As [`put_watched`](Self::put_watched).
    pub(crate) fn put_answer(
        &mut self,
        cluster: &Cluster,
        resource: &Resource,
        entry: Entry,
    ) -> Result<Option<Changed>, CacheLimits> {
        let labels = entry.labels.as_ref();
        let mut covering = self.watches.iter_mut().filter(|(id, _)| {
            let none = BTreeMap::new();
            let is_selected = || id.selector.selects(labels.unwrap_or(&none));
            id.cluster == *cluster
                && id.resource == *resource
                && id.covers(&entry.key)
                && is_selected()
        });
        let Some((_, progress)) = covering.next() else {
            // No watch would report later changes or the deletion.
            return Ok(None);
        };
        if progress.listed.is_some() {
            progress.answered.insert(entry.key.clone());
        }
        let newest_reported = progress.newest;
        let store = self.stores.get(&(cluster.clone(), resource.clone()));
        let kept = store.and_then(|store| store.get(&entry.key));
        let newest = match kept {
            Some(kept) if kept.uid == entry.uid => kept.version,
            // The watch has reported a deletion at this version or before.
            Some(_) | None => newest_reported,
        };
        if newest.is_some() && entry.version <= newest {
            return Ok(None);
        }

        self.put(cluster, resource, entry)
    }

    /// Removes the object that a watch reports as deleted.
    pub(crate) fn delete_watched(
        &mut self,
        id: &WatchId,
        key: &Key,
        uid: &str,
        version: Option<u64>,
    ) -> Option<Changed> {
        let progress = self.watches.get_mut(id)?;
        progress.newest = progress.newest.max(version);
        if let Some(listed) = &mut progress.listed {
            listed.remove(key);
            progress.answered.remove(key);
        }
        let store = self
            .stores
            .get(&(id.cluster.clone(), id.resource.clone()))?;
        let kept = store.get(key)?;
        if kept.uid != uid && !uid.is_empty() && !kept.uid.is_empty() {
            // The answer to a write has already reported a new object of this name.
            return None;
        }

        self.take(&id.cluster, &id.resource, key)
    }

    /// Removes the object that a request has deleted.
    pub(crate) fn delete_answer(&mut self, object: &Ref, uid: &str) -> Option<Changed> {
        let store = (self.stores).get(&(object.cluster.clone(), object.resource.clone()))?;
        let kept = store.get(&object.key)?;
        if uid != kept.uid {
            return None;
        }

        self.take(&object.cluster, &object.resource, &object.key)
    }

    fn put(
        &mut self,
        cluster: &Cluster,
        resource: &Resource,
        mut entry: Entry,
    ) -> Result<Option<Changed>, CacheLimits> {
        // Only the selection of a watch needs them.
        entry.labels = None;
        let (Some(form), Some(usage)) = (self.forms.get(resource), self.clusters.get_mut(cluster))
        else {
            return Ok(None);
        };
        let id = (cluster.clone(), resource.clone());
        let store = self.stores.entry(id).or_default();
        let old = store.get(&entry.key);
        let (old_count, old_size) = old.map_or((0, 0), |old| (1, old.size));
        let objects = usage.objects + 1 - old_count;
        let bytes = (usage.bytes + entry.size).saturating_sub(old_size);
        if objects > usage.limits.objects || bytes > usage.limits.bytes {
            return Err(usage.limits);
        }
        (usage.objects, usage.bytes) = (objects, bytes);
        let is_equal = old.is_some_and(|old| form.is_equal(old, &entry));
        let old = store.put(entry.clone(), form.indexes());
        if is_equal {
            return Ok(None);
        }

        let object = Ref {
            cluster: cluster.clone(),
            resource: resource.clone(),
            key: entry.key.clone(),
        };
        Ok(Some(Changed {
            object,
            old,
            new: Some(entry),
        }))
    }

    fn take(&mut self, cluster: &Cluster, resource: &Resource, key: &Key) -> Option<Changed> {
        let form = self.forms.get(resource)?;
        let store = self.stores.get_mut(&(cluster.clone(), resource.clone()))?;
        let old = store.remove(key, form.indexes())?;
        if let Some(usage) = self.clusters.get_mut(cluster) {
            usage.objects = usage.objects.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(old.size);
        }
        let object = Ref {
            cluster: cluster.clone(),
            resource: resource.clone(),
            key: key.clone(),
        };

        Some(Changed {
            object,
            old: Some(old),
            new: None,
        })
    }

    fn covered(&self, id: &WatchId) -> Vec<Key> {
        let store = (self.stores).get(&(id.cluster.clone(), id.resource.clone()));
        let entries = store.into_iter().flat_map(|store| match &id.namespace {
            Some(namespace) => store.within(namespace),
            None => store.all(),
        });
        let keys = entries.map(|entry| entry.key.clone());
        keys.filter(|key| id.covers(key)).collect()
    }

    /// Returns whether a watch other than `id` reports the object.
    fn is_watched(&self, id: &WatchId, key: &Key) -> bool {
        self.watches.keys().any(|other| {
            other != id
                && other.cluster == id.cluster
                && other.resource == id.resource
                && other.covers(key)
        })
    }

    /// Returns whether a watch has completed its first list.
    pub fn is_synced(&self, id: &WatchId) -> bool {
        let progress = self.watches.get(id);
        progress.is_some_and(|progress| progress.is_synced)
    }

    /// Returns whether a namespace of a resource is watched, and was listed.
    pub fn is_listed<T: Kept>(&self, cluster: &Cluster, namespace: &str) -> bool {
        let resource = T::resource();
        self.watches.iter().any(|(id, progress)| {
            let watched = id.namespace.as_deref();
            id.cluster == *cluster
                && id.resource == resource
                && watched.is_none_or(|watched| watched == namespace)
                && progress.is_synced
        })
    }

    /// Returns the objects of a type in a cluster.
    pub fn objects<T: Kept>(&self, cluster: &Cluster) -> Objects<'_, T> {
        let id = (cluster.clone(), T::resource());
        Objects::new(self.stores.get(&id))
    }

    /// Returns an object of the local cluster.
    pub fn local<T: Kept>(&self, key: &Key) -> Option<&T> {
        self.objects(&Cluster::Local).get(key)
    }

    /// Returns whether an object is in the cache.
    pub fn contains(&self, object: &Ref) -> bool {
        self.entry(object).is_some()
    }

    pub(crate) fn entry(&self, object: &Ref) -> Option<&Entry> {
        let store = (self.stores).get(&(object.cluster.clone(), object.resource.clone()))?;
        store.get(&object.key)
    }

    /// Returns all objects of these resources, as changes that create them.
    pub(crate) fn replay(&self, resources: &BTreeSet<Resource>) -> Vec<Changed> {
        let stores = (self.stores.iter()).filter(|((_, resource), _)| resources.contains(resource));
        let entries = stores.flat_map(|(id, store)| store.all().map(move |entry| (id, entry)));
        let changes = entries.map(|((cluster, resource), entry)| Changed {
            object: Ref {
                cluster: cluster.clone(),
                resource: resource.clone(),
                key: entry.key.clone(),
            },
            old: None,
            new: Some(entry.clone()),
        });
        changes.collect()
    }

    /// Returns the number of objects of a cluster, and the length of their JSON in bytes.
    pub fn usage(&self, cluster: &Cluster) -> (usize, usize) {
        let usage = self.clusters.get(cluster);
        usage.map_or((0, 0), |usage| (usage.objects, usage.bytes))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("clusters", &self.clusters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
