//! Changes of the cache: by watches, and by responses to requests.
//!
//! An object is kept as long as a watch reports it. Watches of one resource may overlap, for example by
//! their label selectors, so the end of a list removes only objects that no other watch reports.

mod fixture;

use super::store::{Store, WatchNumber};
use super::{Cache, CacheLimits, Changed};
use crate::entry::Entry;
use control_client::object::{Cluster, Key, Ref, Resource};
use control_client::watch::WatchId;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet};

/// Deleted objects of a watch that are remembered. The server chooses which deletions it reports.
const DELETED_MAX: usize = 1024;

/// Length of the longest UID that is remembered, in bytes. Those of Kubernetes have 36 (RFC 9562).
const UID_LEN_MAX: usize = 64;

/// State of one watch.
#[derive(Debug, Default)]
pub(super) struct Progress {
    number: WatchNumber,
    /// Keys in the list that is in progress; `None` if none is.
    listed: Option<BTreeSet<Key>>,
    pub(super) is_synced: bool,
    /// Why the server refuses the watch, until it is listed.
    pub(super) refusal: Option<String>,
    /// Highest version that this watch has reported.
    newest: Option<u64>,
    /// Keys of objects that requests have returned since the list began, which may be newer.
    answered: BTreeSet<Key>,
    /// UIDs of objects that requests have deleted, until this watch reports the deletion or lists again. Its earlier events, and
    /// earlier answers, would bring them back. At most [`DELETED_MAX`].
    pub(super) deleted: BTreeMap<Key, String>,
}

impl Cache {
    pub(crate) fn add_watch(&mut self, id: WatchId) {
        let number = self.next_watch;
        self.next_watch += 1;
        self.watches.entry(id).or_insert_with(|| Progress {
            number,
            ..Progress::default()
        });
    }

    /// Removes a watch, and the objects that no other watch reports. Objects that a watch covers whose
    /// first list is not complete are kept until it is, so that a watch can take the place of another.
    pub(crate) fn remove_watch(&mut self, id: &WatchId) -> Vec<Changed> {
        let Some(progress) = self.watches.remove(id) else {
            return Vec::new();
        };
        let of_resource = self.watches.iter().filter(|(other, progress)| {
            other.cluster == id.cluster && other.resource == id.resource && !progress.is_synced
        });
        let namespace = id.namespace.as_deref();
        let store = (self.stores).get_mut(&(id.cluster.clone(), id.resource.clone()));
        if let Some(store) = store {
            for (other, successor) in of_resource {
                let keys = store.reported(progress.number, namespace).into_iter();
                keys.filter(|key| other.covers(key))
                    .for_each(|key| store.report(&key, successor.number));
            }
        }
        if let Some(usage) = self.clusters.get_mut(&id.cluster) {
            usage.rejected.remove(id);
        }
        self.retract_except(id, progress.number, &BTreeSet::new())
    }

    /// Starts a list: objects that are not put until [`end_list`](Self::end_list) were deleted.
    pub(crate) fn begin_list(&mut self, id: &WatchId) {
        if let Some(progress) = self.watches.get_mut(id) {
            progress.listed = Some(BTreeSet::new());
            progress.newest = None;
            progress.answered.clear();
            progress.deleted.clear();
        }
    }

    /// Ends a list, and removes what neither it nor another watch contains.
    pub(crate) fn end_list(&mut self, id: &WatchId) -> Vec<Changed> {
        let Some(progress) = self.watches.get_mut(id) else {
            return Vec::new();
        };
        let Some(mut listed) = progress.listed.take() else {
            return Vec::new();
        };
        progress.is_synced = true;
        progress.refusal = None;
        listed.append(&mut progress.answered);
        let number = progress.number;
        self.retract_except(id, number, &listed)
    }

    /// Notes that the server refuses a watch.
    pub(crate) fn refuse(&mut self, id: &WatchId, message: String) {
        if let Some(progress) = self.watches.get_mut(id) {
            progress.refusal = Some(message);
        }
    }

    /// Notes that a watch reports none but these objects; returns those that no other watch reports.
    fn retract_except(
        &mut self,
        id: &WatchId,
        number: WatchNumber,
        reported: &BTreeSet<Key>,
    ) -> Vec<Changed> {
        let store = self.store(&id.cluster, &id.resource);
        let keys = store.map(|it| it.reported(number, id.namespace.as_deref()));
        let keys = keys.unwrap_or_default();
        let gone = keys.into_iter().filter(|key| !reported.contains(key));
        gone.filter_map(|key| self.retract(id, number, &key))
            .collect()
    }

    /// Notes that a watch no longer reports an object; removes the object if no other watch does.
    fn retract(&mut self, id: &WatchId, number: WatchNumber, key: &Key) -> Option<Changed> {
        let store = self.store_mut(&id.cluster, &id.resource)?;
        if !store.retract(key, number) {
            return None;
        }
        self.take(&id.cluster, &id.resource, key)
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
        // An object that was not asked for would outlive the watch.
        if !id.covers(&entry.key) {
            return Ok(None);
        }
        let Some(progress) = self.watches.get_mut(id) else {
            return Ok(None);
        };
        progress.newest = progress.newest.max(entry.version);
        if !is_listed && progress.deleted.get(&entry.key) == Some(&entry.uid) {
            return Ok(None);
        }
        let store = (self.stores).get_mut(&(id.cluster.clone(), id.resource.clone()));
        let kept = store.as_ref().and_then(|store| store.get(&entry.key));
        // A request may have returned a later state, or a later object of the same name. A list is
        // right otherwise, even if its versions are lower because etcd was restored.
        let is_comparable = if is_listed {
            progress.answered.contains(&entry.key)
        } else {
            kept.is_some_and(|kept| kept.uid == entry.uid)
        };
        let is_outdated = is_comparable && kept.is_some_and(|kept| entry.version < kept.version);
        let (key, is_known, number) = (entry.key.clone(), kept.is_some(), progress.number);
        if let Some(store) = store {
            store.report(&key, number);
        }
        if is_outdated {
            return Ok(None);
        }
        let put = self.put(&id.cluster, &id.resource, entry, &[number]);
        if put.is_err()
            && let Some(usage) = self.clusters.get_mut(&id.cluster)
        {
            usage.rejected.insert(id.clone());
        }
        // The keys of a list are limited like its objects.
        if put.is_ok() || is_known {
            self.keep_listed(id, &key);
        }

        put
    }

    /// Notes that a list contains an object. Its last form is kept, even if it cannot be decoded now.
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
        let none = BTreeMap::new();
        let labels = entry.labels.as_ref().unwrap_or(&none);
        let mut numbers = Vec::new();
        let mut newest_reported = None;
        for (id, progress) in &mut self.watches {
            let is_covering = id.cluster == *cluster
                && id.resource == *resource
                && id.covers(&entry.key)
                && id.selector.selects(labels)
                && (id.selector.node.as_deref()).is_none_or(|node| is_on(&entry, node));
            if !is_covering {
                continue;
            }
            if progress.deleted.get(&entry.key) == Some(&entry.uid) {
                return Ok(None);
            }
            numbers.push(progress.number);
            newest_reported = newest_reported.max(progress.newest);
            if progress.listed.is_some() {
                progress.answered.insert(entry.key.clone());
            }
        }
        if numbers.is_empty() {
            // No watch would report later changes or the deletion.
            return Ok(None);
        }
        let kept = self.store(cluster, resource);
        let kept = kept.and_then(|store| store.get(&entry.key));
        let newest = match kept {
            Some(kept) if kept.uid == entry.uid => kept.version,
            // A watch has reported a deletion at this version or before.
            Some(_) | None => newest_reported,
        };
        if newest.is_some() && entry.version <= newest {
            return Ok(None);
        }

        self.put(cluster, resource, entry, &numbers)
    }

    /// Removes the object that a watch reports as deleted, unless another watch reports it.
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
        }
        if progress.deleted.get(key).is_some_and(|it| it == uid) {
            progress.deleted.remove(key);
        }
        let number = progress.number;
        let kept = self.store(&id.cluster, &id.resource)?.get(key)?;
        if kept.uid != uid && !uid.is_empty() && !kept.uid.is_empty() {
            // The answer to a write has already reported a new object of this name.
            return None;
        }
        self.watches.get_mut(id)?.answered.remove(key);

        self.retract(id, number, key)
    }

    /// Removes the object that a request has deleted.
    pub(crate) fn delete_answer(&mut self, object: &Ref, uid: &str) -> Option<Changed> {
        let kept = self.entry(object)?;
        if uid != kept.uid {
            return None;
        }
        let store = (self.stores).get(&(object.cluster.clone(), object.resource.clone()));
        let numbers = store.map(|it| it.watches(&object.key)).unwrap_or_default();
        let reporting = self.watches.values_mut();
        let is_uid = (1..=UID_LEN_MAX).contains(&uid.len());
        for progress in reporting.filter(|it| is_uid && numbers.contains(&it.number)) {
            if progress.deleted.len() < DELETED_MAX {
                let key = object.key.clone();
                progress.deleted.insert(key, uid.to_owned());
            }
        }

        self.take(&object.cluster, &object.resource, &object.key)
    }

    fn put(
        &mut self,
        cluster: &Cluster,
        resource: &Resource,
        mut entry: Entry,
        watches: &[WatchNumber],
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
        usage.replace(old.map(|old| old.size), entry.size)?;
        let is_equal = old.is_some_and(|old| form.is_equal(old, &entry));
        let stored = Entry {
            full: None,
            managers: None,
            ..entry.clone()
        };
        let old = store.put(stored, watches, form.indexes());
        if is_equal {
            return Ok(None);
        }

        Ok(Some(Changed {
            object: Ref::new(cluster, resource, &entry.key),
            old,
            new: Some(entry),
        }))
    }

    fn take(&mut self, cluster: &Cluster, resource: &Resource, key: &Key) -> Option<Changed> {
        let form = self.forms.get(resource)?;
        let store = self.stores.get_mut(&(cluster.clone(), resource.clone()))?;
        let old = store.remove(key, form.indexes())?;
        if let Some(usage) = self.clusters.get_mut(cluster) {
            usage.remove(old.size);
        }

        Some(Changed {
            object: Ref::new(cluster, resource, key),
            old: Some(old),
            new: None,
        })
    }

    pub(super) fn store(&self, cluster: &Cluster, resource: &Resource) -> Option<&Store> {
        self.stores.get(&(cluster.clone(), resource.clone()))
    }

    fn store_mut(&mut self, cluster: &Cluster, resource: &Resource) -> Option<&mut Store> {
        self.stores.get_mut(&(cluster.clone(), resource.clone()))
    }
}

/// Returns whether a pod is bound to a node. A watch of the pods of a node never reports the end of another node's.
fn is_on(entry: &Entry, node: &str) -> bool {
    let spec = entry.get::<Pod>().and_then(|it| it.spec.as_ref());
    spec.is_none_or(|it| it.node_name.as_deref() == Some(node))
}
