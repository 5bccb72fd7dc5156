//! Computes the desired contents of the eBPF maps from [`Tables`].

use crate::error::Error;
use crate::tables::{Local, Service, Tables, Transit};
use ebpf_common::maps::{
    self, ENTRIES_MAX, Inbound, LOCAL_NODE, LOCAL_SERVICE, LOCAL_SPREAD, LOCAL_TRANSIT, Mac,
    Outbound, PEER_BITS, PeerAddress, SPREAD_BUCKETS, Source, TunnelKey, Unknown, V4,
};
use ebpf_common::settings::Settings;
use ipnet::Ipv4Net;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A key of a longest-prefix-match map: the prefix length in bits, and the bytes of the key.
pub(crate) type Prefix<K> = (u32, K);

/// The desired contents of the maps, as computed from [`Tables`].
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Image {
    pub(crate) outbound: BTreeMap<Prefix<V4>, Outbound>,
    pub(crate) inbound: BTreeMap<Prefix<PeerAddress>, Inbound>,
    pub(crate) local: BTreeMap<Prefix<V4>, maps::Local>,
    pub(crate) sources: BTreeMap<Prefix<V4>, Source>,
    pub(crate) transit_sources: BTreeMap<PeerAddress, V4>,
    pub(crate) unknown_sources: BTreeMap<[u8; 2], Unknown>,
    pub(crate) nodes: BTreeMap<V4, u8>,
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
        let mss = mss_of_peers(tables);
        let image = Self {
            outbound: outbound(tables, settings)?,
            inbound: inbound(tables, &mss)?,
            local: local(tables, settings, &mss)?,
            sources: sources(tables)?,
            transit_sources: (tables.transit_sources.iter())
                .map(|((peer, original), address)| {
                    (peer_address(*peer, *original), address.octets())
                })
                .collect(),
            unknown_sources: (tables.unknown_sources.iter())
                .map(|(peer, address)| {
                    let address = address.octets();
                    (peer.to_be_bytes(), Unknown { address })
                })
                .collect(),
            nodes: (tables.nodes.iter())
                .map(|node| (node.octets(), PRESENT))
                .collect(),
        };
        image.check_limits()?;

        Ok(image)
    }

    fn check_limits(&self) -> Result<(), Error> {
        let limit = ENTRIES_MAX as usize;
        let tables = [
            (maps::OUTBOUND_V4, self.outbound.len()),
            (maps::INBOUND_V4, self.inbound.len()),
            (maps::LOCAL_V4, self.local.len()),
            (maps::SOURCES_V4, self.sources.len()),
            (maps::TRANSIT_SOURCES_V4, self.transit_sources.len()),
            (maps::UNKNOWN_SOURCES_V4, self.unknown_sources.len()),
            (maps::NODES_V4, self.nodes.len()),
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

fn outbound(tables: &Tables, settings: &Settings) -> Result<BTreeMap<Prefix<V4>, Outbound>, Error> {
    (tables.outbound.iter())
        .map(|(from, route)| {
            let (to, host_mask) = remap(*from, route.to)?;
            let mac = Mac(settings.peer_mac(route.peer));
            let mss = route.mss;
            let value = Outbound {
                to,
                host_mask,
                mac,
                mss,
            };
            Ok((prefix(*from), value))
        })
        .collect()
}

fn inbound(
    tables: &Tables,
    mss: &BTreeMap<u16, u16>,
) -> Result<BTreeMap<Prefix<PeerAddress>, Inbound>, Error> {
    (tables.inbound.iter())
        .map(|((peer, from), to)| {
            let (to, host_mask) = remap(*from, *to)?;
            let value = Inbound {
                to,
                host_mask,
                mss: mss.get(peer).copied().unwrap_or_default(),
                padding: [0; 2],
            };
            let len = PEER_BITS + u32::from(from.prefix_len());
            Ok(((len, peer_address(*peer, from.network())), value))
        })
        .collect()
}

fn local(
    tables: &Tables,
    settings: &Settings,
    mss: &BTreeMap<u16, u16>,
) -> Result<BTreeMap<Prefix<V4>, maps::Local>, Error> {
    let mut entries = BTreeMap::new();
    for (destination, local) in &tables.local {
        let value = match local {
            Local::Node(node) => node_entry(*node, settings),
            Local::Spread(nodes) => spread_entry(*destination, nodes, settings)?,
        };
        entries.insert(prefix(*destination), value);
    }
    let transits = (tables.transit.iter())
        .map(|(address, transit)| Ok((*address, transit_entry(transit, settings, mss))));
    let services = (tables.services.iter())
        .map(|(address, service)| Ok((*address, service_entry(*address, service, settings)?)));
    for entry in transits.chain(services) {
        let (address, value) = entry?;
        if entries.insert((32, address.octets()), value).is_some() {
            return Err(Error::AmbiguousDestination { address });
        }
    }

    Ok(entries)
}

fn sources(tables: &Tables) -> Result<BTreeMap<Prefix<V4>, Source>, Error> {
    let unchanged = Source { to: [0; 4] };
    let nets = tables.sources.iter();
    let mut entries: BTreeMap<_, _> = nets.map(|net| (prefix(*net), unchanged)).collect();
    for (address, service) in &tables.services {
        let value = Source {
            to: address.octets(),
        };
        if entries.insert((32, service.to.octets()), value).is_some() {
            return Err(Error::AmbiguousSource {
                address: service.to,
            });
        }
    }

    Ok(entries)
}

fn node_entry(node: Ipv4Addr, settings: &Settings) -> maps::Local {
    maps::Local {
        kind: LOCAL_NODE,
        key: TunnelKey::new(settings.overlay_vni, node.to_bits()),
        spread: [0; SPREAD_BUCKETS],
        to: [0; 4],
        mac: Mac([0; 6]),
        mss: 0,
    }
}

fn spread_entry(
    destination: Ipv4Net,
    nodes: &[Ipv4Addr],
    settings: &Settings,
) -> Result<maps::Local, Error> {
    let mut entry = node_entry(Ipv4Addr::UNSPECIFIED, settings);
    entry.kind = LOCAL_SPREAD;
    for (bucket, node) in entry.spread.iter_mut().enumerate() {
        let seed = seed(bucket, destination);
        *node = (nodes.iter())
            .max_by_key(|node| (score(seed, **node), **node))
            .ok_or(Error::NoNode { destination })?
            .to_bits();
    }

    Ok(entry)
}

fn service_entry(
    address: Ipv4Addr,
    service: &Service,
    settings: &Settings,
) -> Result<maps::Local, Error> {
    let mut entry = spread_entry(address.into(), &service.nodes, settings)?;
    entry.kind = LOCAL_SERVICE;
    entry.to = service.to.octets();

    Ok(entry)
}

fn transit_entry(transit: &Transit, settings: &Settings, mss: &BTreeMap<u16, u16>) -> maps::Local {
    let mut entry = node_entry(Ipv4Addr::UNSPECIFIED, settings);
    entry.kind = LOCAL_TRANSIT;
    entry.to = transit.to.octets();
    entry.mac = Mac(settings.peer_mac(transit.peer));
    entry.mss = mss.get(&transit.peer).copied().unwrap_or_default();

    entry
}

/// Returns the weight of a node for one entry of [`maps::Local::spread`], by rendezvous hashing.
///
/// The entry contains the node with the highest weight. If a node is removed, only the entries that
/// contained this node change.
///
/// All gateway replicas must select the same node, so the hash function is the same in all
/// versions. It is FNV-1a, followed by the finalizer of `MurmurHash3`. With the finalizer, the last
/// bytes affect all bits of the hash.
fn score(seed: u64, node: Ipv4Addr) -> u64 {
    let mut hash = fnv(seed, node.octets());
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Returns the hash of an entry's index and a destination, from which [`score`] continues the hash
/// of each node.
fn seed(bucket: usize, destination: Ipv4Net) -> u64 {
    let bytes = (bucket as u64).to_be_bytes().into_iter();
    let bytes = bytes.chain(destination.network().octets());

    fnv(
        0xcbf2_9ce4_8422_2325,
        bytes.chain([destination.prefix_len()]),
    )
}

fn fnv(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    let bytes = bytes.into_iter();

    bytes.fold(hash, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the lowest MSS limit of the routes to each peer.
///
/// The programs apply one limit to all TCP handshakes from a peer, whatever the route, so it must
/// be the lowest one.
fn mss_of_peers(tables: &Tables) -> BTreeMap<u16, u16> {
    let mut limits = BTreeMap::new();
    for route in tables.outbound.values().filter(|route| route.mss != 0) {
        let limit = limits.entry(route.peer).or_insert(route.mss);
        *limit = route.mss.min(*limit);
    }

    limits
}

/// Returns the network address of `to`, and the mask of the host bits, which a remap keeps.
fn remap(from: Ipv4Net, to: Ipv4Net) -> Result<(V4, V4), Error> {
    if from.prefix_len() != to.prefix_len() {
        return Err(Error::PrefixLengths { from, to });
    }

    Ok((to.network().octets(), to.hostmask().octets()))
}

fn prefix(net: Ipv4Net) -> Prefix<V4> {
    (u32::from(net.prefix_len()), net.network().octets())
}

fn peer_address(peer: u16, address: Ipv4Addr) -> PeerAddress {
    PeerAddress {
        peer: peer.to_be_bytes(),
        padding: [0; 2],
        address: address.octets(),
    }
}
