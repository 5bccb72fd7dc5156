//! Computes the desired contents of the eBPF maps from [`Tables`], and their changes from
//! [`TableChanges`](crate::tables::TableChanges).

use crate::error::Error;
use crate::spread::Spread;
use crate::tables::{Local, Tables};
use ebpf_common::maps::{
    self, ENTRIES_MAX, Inbound, LOCAL_SERVICE, Outbound, PeerAddress, Source, Unknown, V4,
};
use ebpf_common::settings::Settings;
use entries::{
    buckets, host, inbound, inbound_key, net, node_entry, outbound, peer_address, prefix,
    spread_entry, transit_entry,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

mod entries;

/// A key of a longest-prefix-match map: the prefix length in bits, and the bytes of the key.
pub(crate) type Prefix<K> = (u32, K);

/// The contents of the maps.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Image {
    pub(crate) outbound: BTreeMap<Prefix<V4>, Outbound>,
    pub(crate) inbound: BTreeMap<Prefix<PeerAddress>, Inbound>,
    pub(crate) local: BTreeMap<Prefix<V4>, maps::Local>,
    pub(crate) sources: BTreeMap<Prefix<V4>, Source>,
    pub(crate) transit_sources: BTreeMap<PeerAddress, V4>,
    pub(crate) unknown_sources: BTreeMap<[u8; 2], Unknown>,
    pub(crate) nodes: BTreeMap<V4, u8>,
    /// The nodes from which the destinations in `local` select: [`Tables::spread`]. It is in no
    /// map, so it is empty in an image that was read from the kernel.
    pub(crate) spread: BTreeSet<Ipv4Addr>,
}

/// Changes of a map: the new value by key, `None` for a removed entry. The map has another value,
/// or no entry.
pub(crate) type Entries<K, V> = BTreeMap<K, Option<V>>;

/// The changes that turn one image into another.
#[derive(Debug, Default)]
pub(crate) struct ImageChanges {
    pub(crate) outbound: Entries<Prefix<V4>, Outbound>,
    pub(crate) inbound: Entries<Prefix<PeerAddress>, Inbound>,
    pub(crate) local: Entries<Prefix<V4>, maps::Local>,
    pub(crate) sources: Entries<Prefix<V4>, Source>,
    pub(crate) transit_sources: Entries<PeerAddress, V4>,
    pub(crate) unknown_sources: Entries<[u8; 2], Unknown>,
    pub(crate) nodes: Entries<V4, u8>,
    /// The nodes that leave [`Tables::spread`], and those that enter it.
    spread: (BTreeSet<Ipv4Addr>, Vec<Ipv4Addr>),
}

/// The value of all entries in a map that serves as a set of keys.
const PRESENT: u8 = 1;

impl Image {
    /// Computes the contents of the maps for `tables`.
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the tables are inconsistent or exceed a limit.
    pub(crate) fn new(tables: &Tables, settings: &Settings) -> Result<Self, Error> {
        let mut image = Self::default();
        image.apply(image.changes(&Tables::default(), tables, settings)?);

        Ok(image)
    }

    /// Computes the changes of this image by [`TableChanges`](crate::tables::TableChanges).
    ///
    /// # Errors
    ///
    /// Returns [`Error`] if the resulting tables are inconsistent or exceed a limit.
    pub(crate) fn changes(
        &self,
        removed: &Tables,
        added: &Tables,
        settings: &Settings,
    ) -> Result<ImageChanges, Error> {
        let spread = Spread::new(&self.spread, &removed.spread, &added.spread);
        let changes = ImageChanges {
            outbound: changed(
                &self.outbound,
                removed.outbound.keys().map(|from| prefix(*from)),
                outbound(added, settings)?,
            ),
            inbound: changed(
                &self.inbound,
                removed.inbound.keys().map(inbound_key),
                inbound(added)?,
            ),
            local: self.local_changes(removed, added, &spread, settings)?,
            sources: self.source_changes(removed, added)?,
            transit_sources: changed(
                &self.transit_sources,
                removed.transit_sources.keys().map(peer_address),
                (added.transit_sources.iter())
                    .map(|(key, address)| (peer_address(key), address.octets())),
            ),
            unknown_sources: changed(
                &self.unknown_sources,
                removed
                    .unknown_sources
                    .keys()
                    .map(|peer| peer.to_be_bytes()),
                added.unknown_sources.iter().map(|(peer, address)| {
                    let address = address.octets();
                    (peer.to_be_bytes(), Unknown { address })
                }),
            ),
            nodes: changed(
                &self.nodes,
                removed.nodes.iter().map(Ipv4Addr::octets),
                added.nodes.iter().map(|node| (node.octets(), PRESENT)),
            ),
            spread: spread.into_changes(),
        };
        self.check_limits(&changes)?;

        Ok(changes)
    }

    /// Returns the changes that turn this image into `desired`.
    pub(crate) fn changes_to(&self, desired: &Self) -> ImageChanges {
        ImageChanges {
            outbound: differences(&self.outbound, &desired.outbound),
            inbound: differences(&self.inbound, &desired.inbound),
            local: differences(&self.local, &desired.local),
            sources: differences(&self.sources, &desired.sources),
            transit_sources: differences(&self.transit_sources, &desired.transit_sources),
            unknown_sources: differences(&self.unknown_sources, &desired.unknown_sources),
            nodes: differences(&self.nodes, &desired.nodes),
            spread: Default::default(),
        }
    }

    /// Applies the result of [`Image::changes`].
    pub(crate) fn apply(&mut self, changes: ImageChanges) {
        set(&mut self.outbound, changes.outbound);
        set(&mut self.inbound, changes.inbound);
        set(&mut self.local, changes.local);
        set(&mut self.sources, changes.sources);
        set(&mut self.transit_sources, changes.transit_sources);
        set(&mut self.unknown_sources, changes.unknown_sources);
        set(&mut self.nodes, changes.nodes);
        let (removed, added) = changes.spread;
        for node in &removed {
            self.spread.remove(node);
        }
        self.spread.extend(added);
    }

    fn local_changes(
        &self,
        removed: &Tables,
        added: &Tables,
        spread: &Spread<'_>,
        settings: &Settings,
    ) -> Result<Entries<Prefix<V4>, maps::Local>, Error> {
        let of_ips = removed.transit.keys().chain(removed.services.keys());
        let keys = removed.local.keys().map(|net| prefix(*net));
        let keys = keys.chain(of_ips.map(|address| host(*address)));
        let mut changes: Entries<_, _> = keys.map(|key| (key, None)).collect();

        let select = |key, destination| {
            let known = self.local.get(&key).and_then(buckets);
            let selected = spread.select(destination, known);
            selected.ok_or(Error::NoNode { destination })
        };
        let mut add = |key, address, value| {
            let is_free = add(&self.local, &mut changes, key, value);
            let error = Error::AmbiguousDestination { address };
            is_free.then_some(()).ok_or(error)
        };
        for (destination, local) in &added.local {
            let key = prefix(*destination);
            let value = match local {
                Local::Node(node) => node_entry(*node, settings),
                Local::Spread => spread_entry(select(key, *destination)?, settings),
            };
            add(key, destination.network(), value)?;
        }
        for (address, transit) in &added.transit {
            let value = transit_entry(transit, added, settings);
            add(host(*address), *address, value)?;
        }
        for (address, to) in &added.services {
            let key = host(*address);
            let mut value = spread_entry(select(key, (*address).into())?, settings);
            value.kind = LOCAL_SERVICE;
            value.to = to.octets();
            add(key, *address, value)?;
        }

        if spread.is_changed() {
            for (key, entry) in &self.local {
                if let Some(known) = buckets(entry).filter(|_| !changes.contains_key(key)) {
                    let mut entry = *entry;
                    let destination = net(key);
                    let selected = spread.select(destination, Some(known));
                    entry.spread = selected.ok_or(Error::NoNode { destination })?;
                    changes.insert(*key, Some(entry));
                }
            }
        }
        retain_changed(&self.local, &mut changes);

        Ok(changes)
    }

    fn source_changes(
        &self,
        removed: &Tables,
        added: &Tables,
    ) -> Result<Entries<Prefix<V4>, Source>, Error> {
        let keys = removed.sources.iter().map(|net| prefix(*net));
        let keys = keys.chain(removed.services.values().map(|to| host(*to)));
        let mut changes: Entries<_, _> = keys.map(|key| (key, None)).collect();

        let unchanged = Source { to: [0; 4] };
        let nets = added.sources.iter();
        changes.extend(nets.map(|net| (prefix(*net), Some(unchanged))));
        for (address, to) in &added.services {
            let value = Source {
                to: address.octets(),
            };
            if !add(&self.sources, &mut changes, host(*to), value) {
                return Err(Error::AmbiguousSource { address: *to });
            }
        }
        retain_changed(&self.sources, &mut changes);

        Ok(changes)
    }

    fn check_limits(&self, changes: &ImageChanges) -> Result<(), Error> {
        let limit = ENTRIES_MAX as usize;
        let tables = [
            (maps::OUTBOUND_V4, len(&self.outbound, &changes.outbound)),
            (maps::INBOUND_V4, len(&self.inbound, &changes.inbound)),
            (maps::LOCAL_V4, len(&self.local, &changes.local)),
            (maps::SOURCES_V4, len(&self.sources, &changes.sources)),
            (
                maps::TRANSIT_SOURCES_V4,
                len(&self.transit_sources, &changes.transit_sources),
            ),
            (
                maps::UNKNOWN_SOURCES_V4,
                len(&self.unknown_sources, &changes.unknown_sources),
            ),
            (maps::NODES_V4, len(&self.nodes, &changes.nodes)),
        ];
        for (table, entries) in tables {
            if entries > limit {
                return Err(Error::TooMany {
                    table,
                    entries,
                    limit,
                });
            }
        }

        Ok(())
    }
}

#[cfg(any(test, feature = "test-run"))]
impl ImageChanges {
    /// Returns the number of changed entries.
    pub(crate) fn len(&self) -> usize {
        let by_prefix = self.outbound.len() + self.inbound.len() + self.local.len();
        let by_address = self.transit_sources.len() + self.unknown_sources.len();

        by_prefix + self.sources.len() + by_address + self.nodes.len()
    }
}

/// Returns the changes of `before` by removed keys and new entries, which win over removed keys.
fn changed<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    removed: impl Iterator<Item = K>,
    added: impl IntoIterator<Item = (K, V)>,
) -> Entries<K, V> {
    let mut changes: Entries<K, V> = removed.map(|key| (key, None)).collect();
    changes.extend(added.into_iter().map(|(key, value)| (key, Some(value))));
    retain_changed(before, &mut changes);

    changes
}

fn differences<K: Ord + Copy, V: PartialEq + Copy>(
    before: &BTreeMap<K, V>,
    desired: &BTreeMap<K, V>,
) -> Entries<K, V> {
    let removed = before.keys().filter(|key| !desired.contains_key(key));
    let removed = removed.map(|key| (*key, None));
    let added = (desired.iter()).filter(|(key, value)| before.get(key) != Some(value));

    removed
        .chain(added.map(|(key, value)| (*key, Some(*value))))
        .collect()
}

/// Adds an entry; returns false if its key has another entry, which `changes` do not remove.
fn add<K: Ord, V>(before: &BTreeMap<K, V>, changes: &mut Entries<K, V>, key: K, value: V) -> bool {
    let is_free = match changes.get(&key) {
        Some(change) => change.is_none(),
        None => !before.contains_key(&key),
    };
    changes.insert(key, Some(value));

    is_free
}

/// Removes the changes that change nothing.
fn retain_changed<K: Ord, V: PartialEq>(before: &BTreeMap<K, V>, changes: &mut Entries<K, V>) {
    changes.retain(|key, value| before.get(key) != value.as_ref());
}

fn set<K: Ord, V>(entries: &mut BTreeMap<K, V>, changes: Entries<K, V>) {
    for (key, value) in changes {
        match value {
            Some(value) => entries.insert(key, value),
            None => entries.remove(&key),
        };
    }
}

/// Returns the number of entries after the changes.
fn len<K: Ord, V>(before: &BTreeMap<K, V>, changes: &Entries<K, V>) -> usize {
    let (set, removed): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, value)| value.is_some());
    let new = set.iter().filter(|(key, _)| !before.contains_key(key));

    before.len() + new.count() - removed.len()
}
