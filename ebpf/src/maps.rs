//! Typed access to the eBPF maps. An update inserts the new entries before it removes old ones.

use crate::error::Error;
use crate::image::{Entries, Image, ImageChanges, Prefix};
use aya::maps::lpm_trie::Key;
use aya::maps::{HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray};
use aya::{Ebpf, Pod};
use ebpf_common::counter::Counter;
use ebpf_common::maps::{self, Inbound, Local, Outbound, PeerAddress, Source, Unknown, V4};
use ebpf_common::probe::{Heartbeat, LastRequest};
use std::collections::{BTreeMap, BTreeSet};

/// Number of entries that an update changed, over all maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Entries whose keys are new.
    pub inserted: usize,
    /// Entries whose keys were present with another value.
    pub replaced: usize,
    /// Entries whose keys are no longer desired.
    pub removed: usize,
}

/// The maps of the programs at the overlay device and at the TAP.
pub(crate) struct Maps {
    outbound: Prefixes<V4, Outbound>,
    inbound: Prefixes<PeerAddress, Inbound>,
    local: Prefixes<V4, Local>,
    sources: Prefixes<V4, Source>,
    transit_sources: Exact<PeerAddress, V4>,
    unknown_sources: Exact<[u8; 2], Unknown>,
    nodes: Exact<V4, u8>,
    last_requests: Exact<V4, LastRequest>,
    heartbeat: Exact<u32, Heartbeat>,
    counters: PerCpuArray<MapData, u64>,
    /// The contents after the last update; `None` before the first update and after a failed one.
    ///
    /// No other process writes to the maps, so an update compares with this copy instead of reading
    /// the maps. Reading them takes two system calls for each of some ten thousand entries, which
    /// would delay the next heartbeat.
    applied: Option<Image>,
}

impl Maps {
    /// Takes the maps out of a loaded object.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the object file lacks a map, or if a map has another type.
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
            last_requests: Exact::take(ebpf, maps::SIGHTINGS_V4)?,
            heartbeat: Exact::take(ebpf, maps::HEARTBEAT)?,
            counters: PerCpuArray::try_from(counters).map_err(access(maps::COUNTERS))?,
            applied: None,
        })
    }

    /// Returns the sizes of key and value, in bytes, that this loader expects in a pinned map.
    pub(crate) fn sizes(name: &str) -> Option<(u32, u32)> {
        match name {
            maps::OUTBOUND_V4 => Some(sizes::<Key<V4>, Outbound>()),
            maps::INBOUND_V4 => Some(sizes::<Key<PeerAddress>, Inbound>()),
            maps::LOCAL_V4 => Some(sizes::<Key<V4>, Local>()),
            maps::SOURCES_V4 => Some(sizes::<Key<V4>, Source>()),
            maps::TRANSIT_SOURCES_V4 => Some(sizes::<PeerAddress, V4>()),
            maps::UNKNOWN_SOURCES_V4 => Some(sizes::<[u8; 2], Unknown>()),
            maps::NODES_V4 => Some(sizes::<V4, u8>()),
            maps::SIGHTINGS_V4 => Some(sizes::<V4, LastRequest>()),
            maps::HEARTBEAT => Some(sizes::<u32, Heartbeat>()),
            maps::COUNTERS => Some(sizes::<u32, u64>()),
            _ => None,
        }
    }

    /// Updates the maps to `image`, entry by entry.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses a change. The earlier changes stay, and the
    /// next call makes the remaining changes.
    pub(crate) fn apply(&mut self, image: Image) -> Result<Changes, Error> {
        let (before, is_known) = match self.applied.take() {
            Some(before) => (before, true),
            None => (self.observe()?, false),
        };
        let changes = before.changes_to(&image);
        let counts = self.write(&before, &changes)?;
        if is_known {
            self.change_requesting_nodes(&changes)?;
        } else {
            self.set_requesting_nodes(&image.nodes)?;
        }
        self.applied = Some(image);

        Ok(counts)
    }

    /// Returns the contents after the last update; `None` before the first and after a failed one.
    pub(crate) fn applied(&self) -> Option<&Image> {
        self.applied.as_ref()
    }

    /// Changes the maps by changes of [`Maps::applied`], entry by entry.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses a change. The earlier changes stay, and the
    /// next [`Maps::apply`] makes the remaining changes.
    pub(crate) fn update(&mut self, changes: ImageChanges) -> Result<Changes, Error> {
        let mut image = self.applied.take().unwrap_or_default();
        let counts = self.write(&image, &changes)?;
        self.change_requesting_nodes(&changes)?;
        image.apply(changes);
        self.applied = Some(image);

        Ok(counts)
    }

    /// Writes changes of `before` to the maps.
    ///
    /// The method inserts all entries before it removes any, and it inserts destinations last. So
    /// if a program finds the destination of a packet, it also finds all other entries for the
    /// packet.
    fn write(&mut self, before: &Image, changes: &ImageChanges) -> Result<Changes, Error> {
        let mut counts = Changes::default();
        let to = &mut counts;
        insert(&mut self.nodes, &before.nodes, &changes.nodes, to)?;
        insert(&mut self.sources, &before.sources, &changes.sources, to)?;
        insert(&mut self.inbound, &before.inbound, &changes.inbound, to)?;
        insert(
            &mut self.unknown_sources,
            &before.unknown_sources,
            &changes.unknown_sources,
            to,
        )?;
        insert(
            &mut self.transit_sources,
            &before.transit_sources,
            &changes.transit_sources,
            to,
        )?;
        insert(&mut self.local, &before.local, &changes.local, to)?;
        insert(&mut self.outbound, &before.outbound, &changes.outbound, to)?;

        remove(&mut self.outbound, &changes.outbound, to)?;
        remove(&mut self.local, &changes.local, to)?;
        remove(&mut self.transit_sources, &changes.transit_sources, to)?;
        remove(&mut self.unknown_sources, &changes.unknown_sources, to)?;
        remove(&mut self.inbound, &changes.inbound, to)?;
        remove(&mut self.sources, &changes.sources, to)?;
        remove(&mut self.nodes, &changes.nodes, to)?;

        Ok(counts)
    }

    /// Reads the contents of the maps, as an earlier process or a failed update left them.
    fn observe(&self) -> Result<Image, Error> {
        Ok(Image {
            outbound: self.outbound.entries()?,
            inbound: self.inbound.entries()?,
            local: self.local.entries()?,
            sources: self.sources.entries()?,
            transit_sources: self.transit_sources.entries()?,
            unknown_sources: self.unknown_sources.entries()?,
            nodes: self.nodes.entries()?,
            spread: BTreeSet::new(),
        })
    }

    /// Creates entries for the last requests of `nodes`, and removes the entries of other nodes.
    fn set_requesting_nodes(&mut self, nodes: &BTreeMap<V4, u8>) -> Result<(), Error> {
        let known: BTreeSet<V4> = self.last_requests.keys()?;
        for node in nodes.keys().filter(|node| !known.contains(*node)) {
            self.last_requests.insert(node, &LastRequest::NONE)?;
        }
        for node in known.iter().filter(|node| !nodes.contains_key(*node)) {
            self.last_requests.remove(node)?;
        }

        Ok(())
    }

    /// Does the same as [`Maps::set_requesting_nodes`], but without reading the entries.
    fn change_requesting_nodes(&mut self, changes: &ImageChanges) -> Result<(), Error> {
        for (node, value) in &changes.nodes {
            match value {
                Some(_) => self.last_requests.insert(node, &LastRequest::NONE)?,
                None => self.last_requests.remove(node)?,
            }
        }

        Ok(())
    }

    /// Returns the last probe request of each node, by the node's outer address.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel does not return the entries.
    pub(crate) fn last_requests(&self) -> Result<BTreeMap<V4, LastRequest>, Error> {
        self.last_requests.entries()
    }

    /// Replaces the heartbeat, from which the programs reply to probes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel refuses the update.
    pub(crate) fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), Error> {
        self.heartbeat.insert(&0, heartbeat)
    }

    /// Removes a node from the kernel's map only, so that the kernel refuses the next removal.
    #[cfg(any(test, feature = "test-run"))]
    pub(crate) fn lose_node(&mut self, node: &V4) -> Result<(), Error> {
        self.nodes.remove(node)
    }

    /// Returns all counters by name, each summed over the CPUs.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Map`] if the kernel does not return a counter.
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

/// The operations on a map that [`insert`] and [`remove`] need.
trait Table {
    type Key: Copy + Ord;
    type Value: Copy + PartialEq;

    fn entries(&self) -> Result<BTreeMap<Self::Key, Self::Value>, Error>;
    fn insert(&mut self, key: &Self::Key, value: &Self::Value) -> Result<(), Error>;
    fn remove(&mut self, key: &Self::Key) -> Result<(), Error>;
}

/// Inserts the new entries among `changes`, and replaces the changed ones.
fn insert<T: Table>(
    table: &mut T,
    before: &BTreeMap<T::Key, T::Value>,
    changes: &Entries<T::Key, T::Value>,
    counts: &mut Changes,
) -> Result<(), Error> {
    for (key, value) in changes {
        let Some(value) = value else { continue };
        table.insert(key, value)?;
        if before.contains_key(key) {
            counts.replaced += 1;
        } else {
            counts.inserted += 1;
        }
    }

    Ok(())
}

fn remove<T: Table>(
    table: &mut T,
    changes: &Entries<T::Key, T::Value>,
    counts: &mut Changes,
) -> Result<(), Error> {
    for (key, _) in changes.iter().filter(|(_, value)| value.is_none()) {
        table.remove(key)?;
        counts.removed += 1;
    }

    Ok(())
}

/// A map with longest-prefix match (`BPF_MAP_TYPE_LPM_TRIE`).
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

/// A map with exact match (`BPF_MAP_TYPE_HASH`).
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

#[cfg(test)]
mod tests;
