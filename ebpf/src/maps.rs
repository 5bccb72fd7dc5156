//! One typed wrapper per map, and updates that never empty a map.

use crate::error::Error;
use crate::image::{Image, Prefix};
use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray};
use aya::{Ebpf, Pod};
use ebpf_common::counter::Counter;
use ebpf_common::maps::{self, Inbound, Local, Outbound, PeerAddress, Unknown, V4};
use ebpf_common::probe::{Heartbeat, Sighting};
use std::collections::{BTreeMap, BTreeSet};

/// Number of entries that an update changed, over all maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New entries.
    pub inserted: usize,
    /// Entries with a new value.
    pub replaced: usize,
    /// Removed entries.
    pub removed: usize,
}

/// All maps of the programs.
pub(crate) struct Maps {
    outbound: Prefixes<V4, Outbound>,
    inbound: Prefixes<PeerAddress, Inbound>,
    local: Prefixes<V4, Local>,
    sources: Prefixes<V4, u8>,
    transit_sources: Exact<PeerAddress, V4>,
    unknown_sources: Exact<[u8; 2], Unknown>,
    nodes: Exact<V4, u8>,
    sightings: Exact<V4, Sighting>,
    heartbeat: Exact<u32, Heartbeat>,
    counters: PerCpuArray<MapData, u64>,
    /// The contents after the last update; `None` before the first and after one that failed.
    ///
    /// No other process writes to the maps, and reading them takes two system calls for each of
    /// some ten thousand entries, during which no heartbeat can be written.
    applied: Option<Image>,
}

impl Maps {
    /// Takes the maps out of a loaded object.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if object and loader are of different revisions.
    pub(crate) fn take(ebpf: &mut Ebpf) -> Result<Self, Error> {
        let counters = take(ebpf, maps::COUNTERS)?;
        Ok(Self {
            outbound: Prefixes::take(ebpf, maps::OUTBOUND_V4)?,
            inbound: Prefixes::take(ebpf, maps::INBOUND_V4)?,
            local: Prefixes::take(ebpf, maps::LOCAL_V4)?,
            sources: Prefixes::take(ebpf, maps::SOURCES_V4)?,
            transit_sources: Exact::take(ebpf, maps::TRANSIT_SOURCES_V4)?,
            unknown_sources: Exact::take(ebpf, maps::UNKNOWN_SOURCES_V4)?,
            nodes: Exact::take(ebpf, maps::NODES_V4)?,
            sightings: Exact::take(ebpf, maps::SIGHTINGS_V4)?,
            heartbeat: Exact::take(ebpf, maps::HEARTBEAT)?,
            counters: PerCpuArray::try_from(counters).map_err(access(maps::COUNTERS))?,
            applied: None,
        })
    }

    /// Returns the sizes of key and value that this loader expects of a map.
    pub(crate) fn sizes(name: &str) -> Option<(u32, u32)> {
        match name {
            maps::OUTBOUND_V4 => Some(sizes::<Key<V4>, Outbound>()),
            maps::INBOUND_V4 => Some(sizes::<Key<PeerAddress>, Inbound>()),
            maps::LOCAL_V4 => Some(sizes::<Key<V4>, Local>()),
            maps::SOURCES_V4 => Some(sizes::<Key<V4>, u8>()),
            maps::TRANSIT_SOURCES_V4 => Some(sizes::<PeerAddress, V4>()),
            maps::UNKNOWN_SOURCES_V4 => Some(sizes::<[u8; 2], Unknown>()),
            maps::NODES_V4 => Some(sizes::<V4, u8>()),
            maps::SIGHTINGS_V4 => Some(sizes::<V4, Sighting>()),
            maps::HEARTBEAT => Some(sizes::<u32, Heartbeat>()),
            maps::COUNTERS => Some(sizes::<u32, u64>()),
            _ => None,
        }
    }

    /// Updates the maps to `image`, entry by entry.
    ///
    /// Insertions precede deletions, and destinations are inserted last, so that a packet with a
    /// known destination finds all other entries that it needs.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses. Changes made before stay, and the next update
    /// continues from there.
    pub(crate) fn apply(&mut self, image: Image) -> Result<Changes, Error> {
        let (before, is_first) = match self.applied.take() {
            Some(before) => (before, false),
            None => (self.observe()?, true),
        };
        let mut changes = Changes::default();
        let nodes = insert(&mut self.nodes, &before.nodes, &image.nodes, &mut changes)?;
        let sources = insert(
            &mut self.sources,
            &before.sources,
            &image.sources,
            &mut changes,
        )?;
        let inbound = insert(
            &mut self.inbound,
            &before.inbound,
            &image.inbound,
            &mut changes,
        )?;
        let unknown_sources = insert(
            &mut self.unknown_sources,
            &before.unknown_sources,
            &image.unknown_sources,
            &mut changes,
        )?;
        let transit_sources = insert(
            &mut self.transit_sources,
            &before.transit_sources,
            &image.transit_sources,
            &mut changes,
        )?;
        let local = insert(&mut self.local, &before.local, &image.local, &mut changes)?;
        let outbound = insert(
            &mut self.outbound,
            &before.outbound,
            &image.outbound,
            &mut changes,
        )?;

        remove(&mut self.outbound, outbound, &mut changes)?;
        remove(&mut self.local, local, &mut changes)?;
        remove(&mut self.transit_sources, transit_sources, &mut changes)?;
        remove(&mut self.unknown_sources, unknown_sources, &mut changes)?;
        remove(&mut self.inbound, inbound, &mut changes)?;
        remove(&mut self.sources, sources, &mut changes)?;
        remove(&mut self.nodes, nodes, &mut changes)?;
        if is_first || before.nodes != image.nodes {
            self.set_sighted_nodes(&image.nodes)?;
        }
        self.applied = Some(image);

        Ok(changes)
    }

    /// Reads the contents that an earlier process, or a failed update, left.
    fn observe(&self) -> Result<Image, Error> {
        Ok(Image {
            outbound: self.outbound.entries()?,
            inbound: self.inbound.entries()?,
            local: self.local.entries()?,
            sources: self.sources.entries()?,
            transit_sources: self.transit_sources.entries()?,
            unknown_sources: self.unknown_sources.entries()?,
            nodes: self.nodes.entries()?,
        })
    }

    /// Creates entries for the last requests of `nodes`, and removes those of all others.
    fn set_sighted_nodes(&mut self, nodes: &BTreeMap<V4, u8>) -> Result<(), Error> {
        let known: BTreeSet<V4> = self.sightings.keys()?;
        for node in nodes.keys().filter(|node| !known.contains(*node)) {
            self.sightings.insert(node, &Sighting::NONE)?;
        }
        for node in known.iter().filter(|node| !nodes.contains_key(*node)) {
            self.sightings.remove(node)?;
        }

        Ok(())
    }

    /// Returns each node's last request.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses.
    pub(crate) fn sightings(&self) -> Result<BTreeMap<V4, Sighting>, Error> {
        self.sightings.entries()
    }

    /// Replaces the heartbeat.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses.
    pub(crate) fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), Error> {
        self.heartbeat.insert(&0, heartbeat)
    }

    /// Returns every counter, summed over the CPUs.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses.
    pub(crate) fn counters(&self) -> Result<BTreeMap<&'static str, u64>, Error> {
        (Counter::ALL.into_iter())
            .map(|counter| {
                let index = counter as u32;
                let values = self.counters.get(&index, 0);
                let values = values.map_err(access(maps::COUNTERS))?;
                Ok((counter.name(), values.iter().sum()))
            })
            .collect()
    }
}

const fn sizes<K, V>() -> (u32, u32) {
    (size_of::<K>() as u32, size_of::<V>() as u32)
}

/// The operations of an update on a map.
trait Table {
    type Key: Copy + Ord;
    type Value: Copy + PartialEq;

    fn entries(&self) -> Result<BTreeMap<Self::Key, Self::Value>, Error>;
    fn insert(&mut self, key: &Self::Key, value: &Self::Value) -> Result<(), Error>;
    fn remove(&mut self, key: &Self::Key) -> Result<(), Error>;
}

/// Inserts new and replaces changed entries; returns the keys to remove.
fn insert<T: Table>(
    table: &mut T,
    observed: &BTreeMap<T::Key, T::Value>,
    desired: &BTreeMap<T::Key, T::Value>,
    changes: &mut Changes,
) -> Result<BTreeSet<T::Key>, Error> {
    for (key, value) in desired {
        match observed.get(key) {
            Some(present) if present == value => {}
            Some(_) => {
                table.insert(key, value)?;
                changes.replaced += 1;
            }
            None => {
                table.insert(key, value)?;
                changes.inserted += 1;
            }
        }
    }

    Ok((observed.keys().copied())
        .filter(|key| !desired.contains_key(key))
        .collect())
}

fn remove<T: Table>(
    table: &mut T,
    keys: BTreeSet<T::Key>,
    changes: &mut Changes,
) -> Result<(), Error> {
    for key in keys {
        table.remove(&key)?;
        changes.removed += 1;
    }

    Ok(())
}

/// A map with longest-prefix match.
struct Prefixes<K, V> {
    name: &'static str,
    trie: LpmTrie<MapData, K, V>,
}

impl<K: Pod, V: Pod> Prefixes<K, V> {
    fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Self, Error> {
        let trie = LpmTrie::try_from(take(ebpf, name)?).map_err(access(name))?;
        Ok(Self { name, trie })
    }
}

impl<K: Pod + Ord, V: Pod + PartialEq> Table for Prefixes<K, V> {
    type Key = Prefix<K>;
    type Value = V;

    fn entries(&self) -> Result<BTreeMap<Prefix<K>, V>, Error> {
        (self.trie.iter())
            .map(|entry| entry.map(|(key, value)| ((key.prefix_len(), key.data()), value)))
            .collect::<Result<_, _>>()
            .map_err(access(self.name))
    }

    fn insert(&mut self, (len, data): &Prefix<K>, value: &V) -> Result<(), Error> {
        let key = Key::new(*len, *data);
        self.trie.insert(&key, value, 0).map_err(access(self.name))
    }

    fn remove(&mut self, (len, data): &Prefix<K>) -> Result<(), Error> {
        let key = Key::new(*len, *data);
        self.trie.remove(&key).map_err(access(self.name))
    }
}

/// A map with exact match.
struct Exact<K, V> {
    name: &'static str,
    hash: HashMap<MapData, K, V>,
}

impl<K: Pod, V: Pod> Exact<K, V> {
    fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Self, Error> {
        let hash = HashMap::try_from(take(ebpf, name)?).map_err(access(name))?;
        Ok(Self { name, hash })
    }

    fn keys<C: FromIterator<K>>(&self) -> Result<C, Error> {
        (self.hash.keys())
            .collect::<Result<_, _>>()
            .map_err(access(self.name))
    }
}

impl<K: Pod + Ord, V: Pod + PartialEq> Table for Exact<K, V> {
    type Key = K;
    type Value = V;

    fn entries(&self) -> Result<BTreeMap<K, V>, Error> {
        (self.hash.iter())
            .collect::<Result<_, _>>()
            .map_err(access(self.name))
    }

    fn insert(&mut self, key: &K, value: &V) -> Result<(), Error> {
        self.hash.insert(key, value, 0).map_err(access(self.name))
    }

    fn remove(&mut self, key: &K) -> Result<(), Error> {
        self.hash.remove(key).map_err(access(self.name))
    }
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, Error> {
    ebpf.take_map(name).ok_or(Error::Missing { name })
}

fn access(map: &'static str) -> impl Fn(MapError) -> Error {
    move |source| Error::Map {
        map,
        source: Box::new(source),
    }
}
