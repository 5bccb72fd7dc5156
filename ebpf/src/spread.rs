//! Selects nodes for the destinations that any node can receive, by rendezvous hashing.
//!
//! Each bucket of a destination contains the node with the highest weight. If a node is added or
//! removed, only the buckets change that contain this node afterwards or before.

use ebpf_common::maps::SPREAD_BUCKETS;
use ipnet::Ipv4Net;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// The selected nodes of a destination, in host byte order: [`ebpf_common::maps::Local::spread`].
pub(crate) type Buckets = [u32; SPREAD_BUCKETS];

/// The set of nodes to select from, and its change.
pub(crate) struct Spread<'a> {
    before: &'a BTreeSet<Ipv4Addr>,
    removed: BTreeSet<Ipv4Addr>,
    added: Vec<Ipv4Addr>,
    /// The set after the change, computed at the first use.
    after: OnceCell<Vec<Ipv4Addr>>,
}

impl<'a> Spread<'a> {
    /// Creates the set `before` with a change. A node may be both in `removed` and in `added`; it
    /// is in the set afterwards.
    pub(crate) fn new(
        before: &'a BTreeSet<Ipv4Addr>,
        removed: &BTreeSet<Ipv4Addr>,
        added: &BTreeSet<Ipv4Addr>,
    ) -> Self {
        let removed = removed.difference(added).filter(|it| before.contains(it));

        Self {
            before,
            removed: removed.copied().collect(),
            added: added.difference(before).copied().collect(),
            after: OnceCell::new(),
        }
    }

    /// Returns whether the set changes.
    pub(crate) fn is_changed(&self) -> bool {
        !self.removed.is_empty() || !self.added.is_empty()
    }

    /// Returns the nodes that leave the set, and those that enter it.
    pub(crate) fn into_changes(self) -> (BTreeSet<Ipv4Addr>, Vec<Ipv4Addr>) {
        (self.removed, self.added)
    }

    /// Selects the nodes of `destination`. `known` are those of the set before the change.
    ///
    /// Returns `None` if the set is empty.
    pub(crate) fn select(&self, destination: Ipv4Net, known: Option<&Buckets>) -> Option<Buckets> {
        let mut buckets = [0; SPREAD_BUCKETS];
        for (bucket, node) in buckets.iter_mut().enumerate() {
            let known = known.map(|known| Ipv4Addr::from_bits(known[bucket]));
            let known = known.filter(|node| !self.removed.contains(node));
            let selected = match known {
                Some(node) if self.added.is_empty() => Some(node),
                Some(node) => {
                    let added = self.added.iter().copied();
                    heaviest(bucket, destination, added.chain([node]))
                }
                None => heaviest(bucket, destination, self.after().iter().copied()),
            };
            *node = selected?.to_bits();
        }

        Some(buckets)
    }

    fn after(&self) -> &[Ipv4Addr] {
        self.after.get_or_init(|| {
            let kept = self.before.difference(&self.removed);
            kept.chain(&self.added).copied().collect()
        })
    }
}

fn heaviest(
    bucket: usize,
    destination: Ipv4Net,
    nodes: impl IntoIterator<Item = Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let seed = seed(bucket, destination);

    nodes
        .into_iter()
        .max_by_key(|node| (score(seed, *node), *node))
}

/// Returns the weight of a node for one bucket.
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

/// Returns the hash of a bucket's index and a destination, from which [`score`] continues the hash
/// of each node.
fn seed(bucket: usize, destination: Ipv4Net) -> u64 {
    let [a, b, c, d] = destination.network().octets();

    fnv(BUCKETS[bucket], [a, b, c, d, destination.prefix_len()])
}

/// The hash of each bucket's index, as eight bytes in network byte order.
const BUCKETS: [u64; SPREAD_BUCKETS] = {
    let mut hashes = [0; SPREAD_BUCKETS];
    let mut bucket = 0;
    while bucket < SPREAD_BUCKETS {
        hashes[bucket] = fnv(0xcbf2_9ce4_8422_2325, (bucket as u64).to_be_bytes());
        bucket += 1;
    }
    hashes
};

/// Continues an FNV-1a hash.
const fn fnv<const N: usize>(mut hash: u64, bytes: [u8; N]) -> u64 {
    let mut at = 0;
    while at < N {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway of another version must select the same nodes.
    #[test]
    fn the_selection_is_that_of_all_versions() {
        let nodes = (1..=5)
            .map(|host| Ipv4Addr::new(172, 18, 0, host))
            .collect();
        let (none, destination) = (BTreeSet::new(), "10.70.0.0/16".parse().unwrap());

        let spread = Spread::new(&none, &none, &nodes);

        let hosts = spread.select(destination, None).unwrap();
        let hosts = hosts.map(|node| Ipv4Addr::from_bits(node).octets()[3]);
        assert_eq!(hosts, [3, 3, 4, 5, 4, 2, 1, 1, 2, 5, 3, 3, 1, 5, 2, 5]);
    }
}
