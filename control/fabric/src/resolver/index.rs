//! Finds the entities that depend on each other through their facts.

use super::entity::Entity;
use super::facts::{Class, Facts, Key, Values};
use ipnet::Ipv4Net;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// The facts of all entities.
#[derive(Debug, Default)]
pub(super) struct Index {
    providers: Side,
    readers: Side,
}

impl Index {
    pub(super) fn insert(&mut self, entity: &Entity, facts: &Facts) {
        self.providers.insert(entity, &facts.provided);
        self.readers.insert(entity, &facts.read);
    }

    pub(super) fn remove(&mut self, entity: &Entity, facts: &Facts) {
        self.providers.remove(entity, &facts.provided);
        self.readers.remove(entity, &facts.read);
    }

    /// Returns the entities that read a provided value of `facts`.
    pub(super) fn readers(&self, facts: &Facts) -> BTreeSet<Entity> {
        self.readers.find(&facts.provided)
    }

    /// Returns the entities that provide a value that `facts` read.
    pub(super) fn providers(&self, facts: &Facts) -> BTreeSet<Entity> {
        self.providers.find(&facts.read)
    }
}

/// The entities that provide values, or those that read them.
#[derive(Debug, Default)]
struct Side {
    keys: BTreeMap<Key, BTreeSet<Entity>>,
    /// By class, first address and prefix length.
    prefixes: BTreeMap<(Class, Ipv4Addr, u8), BTreeSet<Entity>>,
    /// Number of different prefixes by class and length, so that only lengths in use are looked up.
    lengths: BTreeMap<(Class, u8), usize>,
}

impl Side {
    fn insert(&mut self, entity: &Entity, values: &Values) {
        for key in &values.keys {
            let entities = self.keys.entry(key.clone()).or_default();
            entities.insert(entity.clone());
        }
        for &(class, prefix) in &values.prefixes {
            let entities = self.prefixes.entry(position(class, prefix)).or_default();
            if entities.is_empty() {
                *self
                    .lengths
                    .entry((class, prefix.prefix_len()))
                    .or_default() += 1;
            }
            entities.insert(entity.clone());
        }
    }

    fn remove(&mut self, entity: &Entity, values: &Values) {
        for key in &values.keys {
            if let Some(entities) = self.keys.get_mut(key) {
                entities.remove(entity);
                if entities.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
        for &(class, prefix) in &values.prefixes {
            let position = position(class, prefix);
            let Some(entities) = self.prefixes.get_mut(&position) else {
                continue;
            };
            entities.remove(entity);
            if entities.is_empty() {
                self.prefixes.remove(&position);
                self.forget_length((class, prefix.prefix_len()));
            }
        }
    }

    fn forget_length(&mut self, length: (Class, u8)) {
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    fn find(&self, values: &Values) -> BTreeSet<Entity> {
        let keys = values.keys.iter().filter_map(|key| self.keys.get(key));
        let mut found: BTreeSet<_> = keys.flatten().cloned().collect();
        for &(class, prefix) in &values.prefixes {
            self.find_overlaps(class, prefix, &mut found);
        }

        found
    }

    fn find_overlaps(&self, class: Class, prefix: Ipv4Net, found: &mut BTreeSet<Entity>) {
        let shorter = (class, 0)..(class, prefix.prefix_len());
        for &(class, length) in self.lengths.range(shorter).map(|(key, _)| key) {
            let Ok(outer) = Ipv4Net::new(prefix.addr(), length) else {
                continue;
            };
            if let Some(entities) = self.prefixes.get(&position(class, outer.trunc())) {
                found.extend(entities.iter().cloned());
            }
        }
        let inner = position(class, prefix)..=(class, prefix.broadcast(), 32);
        let inner = self.prefixes.range(inner).map(|(_, entities)| entities);
        found.extend(inner.flatten().cloned());
    }
}

fn position(class: Class, prefix: Ipv4Net) -> (Class, Ipv4Addr, u8) {
    (class, prefix.network(), prefix.prefix_len())
}
