//! A cache that is changed by hand, for tests of controllers.

use crate::cache::{Cache, CacheLimits, CacheReader, Changed};
use crate::entry::Entry;
use crate::registration::{Registration, RegistrationError};
use control_client::object::{Cluster, Ref};
use control_client::watch::WatchId;
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};

impl Cache {
    /// Creates a cache of the local cluster that keeps objects of these registrations.
    ///
    /// # Errors
    ///
    /// Returns [`RegistrationError`] if two registrations contradict each other.
    pub fn fixture(registrations: &[Registration]) -> Result<Self, RegistrationError> {
        let mut cache = Self::default();
        cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
        for registration in registrations {
            cache.register(registration)?;
        }

        Ok(cache)
    }

    /// Puts an object of the local cluster. Returns the change, if there is one.
    pub fn fixture_put(&mut self, registration: &Registration, entry: Entry) -> Option<Changed> {
        let resource = &registration.resource;
        let covering = self.watches.iter().filter(|(id, _)| {
            id.cluster == Cluster::Local && id.resource == *resource && id.covers(&entry.key)
        });
        let watches: Vec<_> = covering.map(|(_, progress)| progress.number).collect();
        let put = self.put(&Cluster::Local, resource, entry, &watches);
        put.ok().flatten()
    }

    /// Puts an object of a peer. Returns the change, if there is one.
    pub fn fixture_put_remote(
        &mut self,
        cluster: &Cluster,
        registration: &Registration,
        entry: Entry,
    ) -> Option<Changed> {
        self.add_cluster(cluster.clone(), CacheLimits::REMOTE);
        let put = self.put(cluster, &registration.resource, entry, &[]);
        put.ok().flatten()
    }

    /// Removes an object. Returns the change, if there is one.
    pub fn fixture_remove(&mut self, object: &Ref) -> Option<Changed> {
        self.take(&object.cluster, &object.resource, &object.key)
    }

    /// Adds a watch whose first list is complete. It reports the objects that are put later.
    pub fn fixture_watch(&mut self, id: &WatchId) {
        self.add_watch(id.clone());
        self.begin_list(id);
        self.end_list(id);
    }

    /// Removes a watch with its objects. Returns the changes.
    pub fn fixture_unwatch(&mut self, id: &WatchId) -> Vec<Changed> {
        self.remove_watch(id)
    }

    /// Returns all objects as changes that create them, as a controller observes them at the start.
    pub fn fixture_replay(&self) -> Vec<Changed> {
        let resources = self.forms.keys().cloned().collect();
        self.replay(&resources)
    }
}

impl CacheReader {
    /// Creates a reader of a cache that is changed by hand.
    pub fn fixture(cache: Cache) -> Self {
        Self {
            cache: Arc::new(RwLock::new(cache)),
        }
    }

    /// Returns the cache to change it.
    pub fn fixture_write(&self) -> RwLockWriteGuard<'_, Cache> {
        self.cache.write().unwrap_or_else(PoisonError::into_inner)
    }
}
