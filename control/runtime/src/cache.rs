//! The objects of all clusters that this process follows.
//!
//! There is one form per resource, however many controllers register it. The cache is changed by
//! one task only; any other reads through a [`CacheReader`].

use crate::entry::{Entry, Kept};
use crate::registration::{self, Form, Registration, RegistrationError};
use control_client::object::{Cluster, Key, Ref, Resource};
use control_client::watch::WatchId;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

mod change;
mod inputs;
mod limits;
mod reader;
mod store;
mod watched;

pub use change::{Change, Changed};
pub use limits::CacheLimits;
pub use reader::CacheReader;
pub use store::Objects;

use limits::Usage;
use store::Store;
use watched::Progress;

/// The objects of all clusters.
#[derive(Default)]
pub struct Cache {
    forms: BTreeMap<Resource, Arc<dyn Form>>,
    stores: BTreeMap<(Cluster, Resource), Store>,
    watches: BTreeMap<WatchId, Progress>,
    clusters: BTreeMap<Cluster, Usage>,
    /// Number of the next watch.
    next_watch: store::WatchNumber,
}

impl Cache {
    /// Adds the form of a registration.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if it contradicts another registration of the resource.
    pub(crate) fn register(
        &mut self,
        registration: &Registration,
    ) -> Result<(), RegistrationError> {
        let resource = &registration.resource;
        let form = match self.forms.get(resource) {
            Some(known) => registration::merge(resource, known, &registration.form)?,
            None => Arc::clone(&registration.form),
        };
        self.forms.insert(resource.clone(), form);

        Ok(())
    }

    pub(crate) fn form(&self, resource: &Resource) -> Option<&Arc<dyn Form>> {
        self.forms.get(resource)
    }

    pub(crate) fn add_cluster(&mut self, cluster: Cluster, limits: CacheLimits) {
        let usage = self.clusters.entry(cluster);
        usage.or_insert_with(|| Usage::new(limits)).limits = limits;
    }

    /// Removes a cluster and its objects.
    pub(crate) fn remove_cluster(&mut self, cluster: &Cluster) -> Vec<Changed> {
        let watches: Vec<_> = self.watches.keys().cloned().collect();
        let of_cluster = watches.into_iter().filter(|id| id.cluster == *cluster);
        let changes = of_cluster.flat_map(|id| self.remove_watch(&id)).collect();
        self.clusters.remove(cluster);

        changes
    }

    /// Returns the watches whose objects are to be listed again, because some exceeded the limits of
    /// their cluster and there is room now.
    pub(crate) fn relistable(&mut self, now: Instant) -> BTreeSet<WatchId> {
        let clusters = self.clusters.values_mut();
        clusters.flat_map(|usage| usage.relistable(now)).collect()
    }

    /// Returns whether a watch has completed its first list.
    pub fn is_synced(&self, id: &WatchId) -> bool {
        let progress = self.watches.get(id);
        progress.is_some_and(|progress| progress.is_synced)
    }

    /// Returns the message of the server that refuses a watch, because the resource or the right is missing; `None` if it does
    /// not. Objects that were listed before stay in the cache.
    pub fn refusal(&self, id: &WatchId) -> Option<&str> {
        self.watches.get(id)?.refusal.as_deref()
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
        self.dynamic(cluster, &T::resource())
    }

    /// Returns the objects of a resource in a cluster, which are kept as `T`.
    pub fn dynamic<T>(&self, cluster: &Cluster, resource: &Resource) -> Objects<'_, T>
    where
        T: Any + Send + Sync,
    {
        Objects::new(self.store(cluster, resource))
    }

    /// Returns an object of the local cluster.
    pub fn local<T: Kept>(&self, key: &Key) -> Option<&T> {
        self.objects(&Cluster::Local).get(key)
    }

    /// Returns whether an object is in the cache.
    pub fn contains(&self, object: &Ref) -> bool {
        self.entry(object).is_some()
    }

    /// Returns an object with its metadata.
    pub fn entry(&self, object: &Ref) -> Option<&Entry> {
        let store = self.store(&object.cluster, &object.resource)?;
        store.get(&object.key)
    }

    /// Returns all objects of these resources, as changes that create them.
    pub(crate) fn replay(&self, resources: &BTreeSet<Resource>) -> Vec<Changed> {
        let stores = (self.stores.iter()).filter(|((_, resource), _)| resources.contains(resource));
        let entries = stores.flat_map(|(id, store)| store.all().map(move |entry| (id, entry)));
        let changes = entries.map(|((cluster, resource), entry)| Changed {
            object: Ref::new(cluster, resource, &entry.key),
            old: None,
            new: Some(entry.clone()),
        });
        changes.collect()
    }

    /// Returns how many objects of a cluster exceeded its limits since the last call; `None` if it was
    /// removed.
    pub(crate) fn take_rejections(&mut self, cluster: &Cluster) -> Option<u64> {
        let usage = self.clusters.get_mut(cluster)?;
        Some(std::mem::take(&mut usage.rejections))
    }

    /// Returns the number of objects of a cluster, and the length of their JSON in bytes.
    pub fn usage(&self, cluster: &Cluster) -> (usize, usize) {
        let usage = self.clusters.get(cluster);
        usage.map_or((0, 0), |usage| (usage.objects, usage.bytes))
    }
}

#[cfg(test)]
mod tests;
