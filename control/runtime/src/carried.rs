//! Full objects that travel with work items.

use crate::entry::Entry;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most bytes of JSON of the objects of a controller.
const BYTES_MAX: usize = 8 << 20;

/// The full objects of a controller's work items, until what they cause has been written.
///
/// A controller whose registration wants [full objects](crate::Registration::full_objects), while the
/// cache keeps a digest, puts them in `observe` and in `done`, takes them in `plan`, and removes them
/// when the write has succeeded. An object that is not there, because there were too many or the process
/// has started again, is read by [`Plan::reads`](crate::Plan::reads).
#[derive(Debug)]
pub struct Carried<I> {
    objects: BTreeMap<I, (usize, Arc<dyn Any + Send + Sync>)>,
    bytes: usize,
}

impl<I> Default for Carried<I> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<I: Ord> Carried<I> {
    /// Keeps the full object of an entry in place of an earlier one. Drops those of other items if there are too many: the item
    /// of the last object is planned first, and may have waited for it.
    pub fn put(&mut self, item: I, entry: &Entry) {
        self.remove(&item);
        let Some(full) = entry.full.as_ref().filter(|_| entry.size <= BYTES_MAX) else {
            return;
        };
        while self.bytes + entry.size > BYTES_MAX
            && let Some((_, (size, _))) = self.objects.pop_first()
        {
            self.bytes -= size;
        }
        self.bytes += entry.size;
        self.objects.insert(item, (entry.size, Arc::clone(full)));
    }

    /// Returns the object of an item.
    pub fn get<K: Any + Send + Sync>(&self, item: &I) -> Option<&K> {
        self.objects.get(item)?.1.downcast_ref()
    }

    /// Drops the object of an item.
    pub fn remove(&mut self, item: &I) {
        if let Some((size, _)) = self.objects.remove(item) {
            self.bytes -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, CacheLimits};
    use crate::digest::Digested;
    use crate::registration::{Registration, Scope};
    use control_client::object::{Cluster, Resource};
    use k8s_openapi::api::core::v1::Secret;
    use kube::api::DynamicObject;
    use serde_json::json;

    fn registration() -> Registration {
        let keep = |object: DynamicObject| Digested::new(object.metadata, &object.data);
        Registration::dynamic(Scope::All, Resource::of::<Secret>(), keep).full_objects()
    }

    fn entry(name: &str, length: usize) -> Entry {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "v".repeat(length)},
            "metadata": {"name": name, "namespace": "a", "uid": name, "resourceVersion": "1"}});
        registration().decode(&object.to_string()).unwrap()
    }

    #[test]
    fn a_change_carries_the_full_object_and_the_cache_keeps_the_digest() {
        let registration = registration();
        let mut cache = Cache::default();
        cache.add_cluster(Cluster::Local, CacheLimits::LOCAL);
        cache.register(&registration).unwrap();
        let id = registration.watch_id().unwrap();
        cache.add_watch(id.clone());
        let mut carried = Carried::default();

        let put = cache.put_watched(&id, entry("x", 3), false);
        let change = put.unwrap().unwrap();
        let change = change.as_change();
        carried.put("x", change.entry().unwrap());

        let object: &DynamicObject = carried.get(&"x").unwrap();
        assert_eq!(object.data["data"]["k"], "vvv");
        let stored = cache.entry(change.object).unwrap();
        assert!(stored.full::<DynamicObject>().is_none() && stored.get::<Digested>().is_some());
        carried.remove(&"x");
        assert!(carried.get::<DynamicObject>(&"x").is_none());
    }

    #[test]
    fn the_last_object_is_carried_and_the_bytes_stay_below_the_limit() {
        let mut carried = Carried::default();
        let third = BYTES_MAX / 3;
        for item in 0..9 {
            carried.put(item, &entry("x", third));
            assert!(carried.get::<DynamicObject>(&item).is_some());
            assert!(carried.bytes <= BYTES_MAX && carried.objects.len() <= 2);
        }

        carried.put(9, &entry("y", BYTES_MAX));
        assert!(carried.get::<DynamicObject>(&9).is_none());
        carried.put(8, &entry("x", 3));
        (0..9).for_each(|item| carried.remove(&item));
        assert_eq!(carried.bytes, 0);
    }
}
