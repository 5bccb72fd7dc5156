//! An updated state equals the state that is planned from scratch, over random changes.

use super::*;
use control_fabric::{Resolver, generate};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Number of random sequences; one sequence takes about 20 ms.
const CASES: u32 = 200;

/// A random change: of objects, of private keys, and whether engine or eBPF programs refuse it.
type Step = (control_fabric::Changes, Option<Vec<Option<u8>>>, bool);

fn step() -> impl Strategy<Value = Step> {
    let key = prop::option::weighted(0.8, 0..3_u8);
    let keys = prop::option::weighted(0.2, prop::collection::vec(key, 4));

    (generate::changes(), keys, prop::bool::weighted(0.1))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn an_updated_state_equals_the_state_from_scratch(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut resolver = Resolver::new("liqo", &["developers".to_owned()]);
        let fabric = resolver.apply(generate::cluster()).fabric.clone();
        let mut keys = vec![Some(0); 4];
        let mut applied = Planned::new(fabric.unwrap(), |peer| key(&keys, peer));
        let mut entries = Entries::of(applied.tables());
        let mut are_keys_changed = false;
        for (changes, new_keys, is_refused) in steps {
            if let Some(new_keys) = new_keys {
                are_keys_changed = true;
                keys = new_keys;
            }
            let Ok(fabric) = resolver.apply(changes).fabric.clone() else {
                continue;
            };
            let updated = applied.update(fabric, are_keys_changed, |peer| key(&keys, peer));
            if is_refused {
                applied.skip_indices(&updated);
                continue;
            }

            check_peers(&updated, &applied, &keys)?;
            let changes = updated.changes_since(&applied);
            entries.apply(changes.tables())?;
            prop_assert_eq!(&entries, &Entries::of(updated.tables()));
            if !changes.are_tunnelled_changed {
                prop_assert_eq!(applied.tunnelled(), updated.tunnelled());
            }
            if !changes.are_ranks_changed {
                prop_assert_eq!(applied.ranks(), updated.ranks());
            }
            if changes.is_empty() {
                prop_assert!(applied.fabric == updated.fabric && applied.peers == updated.peers);
            }
            are_keys_changed = false;
            applied = updated;
        }
    }
}

fn key(keys: &[Option<u8>], peer: &Peer) -> Option<PrivateKey> {
    let byte = keys[peer.cluster_id.len() % keys.len()]?;

    Some([byte; PrivateKey::LEN].into())
}

fn check_peers(
    updated: &Planned,
    before: &Planned,
    keys: &[Option<u8>],
) -> Result<(), TestCaseError> {
    let fabric = &updated.fabric;
    let ids: Vec<_> = fabric.peers.iter().map(|it| &it.cluster_id).collect();
    prop_assert_eq!(updated.ranks().keys().collect::<Vec<_>>(), ids);
    let indices: BTreeSet<_> = updated.ranks().values().collect();
    prop_assert_eq!(indices.len(), updated.ranks().len());
    for (id, index) in &**before.ranks() {
        prop_assert!(updated.ranks().get(id).is_none_or(|it| it == index));
    }

    let expected = fabric.peers.iter().filter_map(|peer| {
        let index = updated.ranks()[&peer.cluster_id];
        Some(config_of(peer, index, key(keys, peer)?))
    });
    let expected: List<_> = expected.collect();
    prop_assert!(updated.peers == expected);
    let keyless = fabric.peers.iter().filter(|it| key(keys, it).is_none());
    let keyless: BTreeSet<_> = keyless.map(|it| it.cluster_id.clone()).collect();
    prop_assert_eq!(&updated.keyless, &keyless);

    Ok(())
}

/// The tables without [`Tables::mss`], and the segment size of each entry that has one.
#[derive(Debug, PartialEq)]
struct Entries {
    tables: Tables,
    mss: BTreeMap<String, u16>,
}

impl Entries {
    fn of(mut tables: Tables) -> Self {
        let mss = limited(&tables);
        let mss = mss
            .map(|(entry, peer)| (entry, tables.mss[&peer]))
            .collect();
        tables.mss.clear();

        Self { tables, mss }
    }

    /// Applies the changes as the loader of the eBPF programs does: an added key must be free.
    fn apply(&mut self, changes: TableChanges) -> Result<(), TestCaseError> {
        let TableChanges { removed, added } = changes;
        for (entry, _) in limited(&removed) {
            self.mss.remove(&entry);
        }
        let Self { tables: added, mss } = Self::of(added);
        self.mss.extend(mss);
        let tables = &mut self.tables;
        replace(&mut tables.outbound, &removed.outbound, added.outbound)?;
        replace(&mut tables.inbound, &removed.inbound, added.inbound)?;
        replace(&mut tables.local, &removed.local, added.local)?;
        replace(&mut tables.transit, &removed.transit, added.transit)?;
        let (removed_sources, sources) = (&removed.transit_sources, added.transit_sources);
        replace(&mut tables.transit_sources, removed_sources, sources)?;
        replace(&mut tables.services, &removed.services, added.services)?;
        let (removed_sources, sources) = (&removed.unknown_sources, added.unknown_sources);
        replace(&mut tables.unknown_sources, removed_sources, sources)?;
        tables.sources = &(&tables.sources - &removed.sources) | &added.sources;
        tables.nodes = &(&tables.nodes - &removed.nodes) | &added.nodes;
        tables.spread = &(&tables.spread - &removed.spread) | &added.spread;

        Ok(())
    }
}

/// Returns the entries with a segment size, and their peers.
fn limited(tables: &Tables) -> impl Iterator<Item = (String, u16)> + use<> {
    let outbound = tables.outbound.iter();
    let outbound = outbound.map(|(to, it)| (format!("outbound {to}"), it.peer));
    let inbound = tables.inbound.keys();
    let inbound = inbound.map(|(peer, from)| (format!("inbound {peer} {from}"), *peer));
    let transit = tables.transit.iter();
    let transit = transit.map(|(to, it)| (format!("transit {to}"), it.peer));
    let all: Vec<_> = outbound.chain(inbound).chain(transit).collect();

    all.into_iter()
}

fn replace<K: Ord + std::fmt::Debug, V>(
    table: &mut BTreeMap<K, V>,
    removed: &BTreeMap<K, V>,
    added: BTreeMap<K, V>,
) -> Result<(), TestCaseError> {
    table.retain(|key, _| !removed.contains_key(key));
    for (key, value) in added {
        prop_assert!(!table.contains_key(&key), "{key:?} is not free");
        table.insert(key, value);
    }

    Ok(())
}

#[test]
fn a_peer_without_a_key_is_no_peer_of_the_engine_but_has_an_index() {
    let mut resolver = Resolver::new("liqo", &[]);
    let fabric = resolver.apply(generate::cluster()).fabric.clone().unwrap();
    let peer = Peer {
        cluster_id: "milan".to_owned(),
        pods: Vec::new(),
        external: Vec::new(),
        role: control_fabric::Role::Client {
            addresses: vec!["192.0.2.1".to_owned()],
            port: 51840,
        },
        mtu: 1340,
        key_secret: String::new(),
        public_key: [1; 32],
        gateway_name: String::new(),
    };
    let with_peer = Fabric {
        peers: vec![peer].into(),
        ..fabric.clone()
    };

    let keyless = Planned::new(fabric, |_| None).update(with_peer.clone(), false, |_| None);
    let with_key = keyless.update(with_peer, true, |_| Some([9; 32].into()));

    assert!(keyless.peers.is_empty());
    assert_eq!(keyless.keyless, ["milan".to_owned()].into());
    assert_eq!(keyless.ranks()["milan"], 0);
    assert!(with_key.keyless.is_empty());
    let config = &with_key.peers[0];
    assert_eq!(config.local_private_key, [9; 32].into());
    let addresses = vec!["192.0.2.1".to_owned()];
    let port = 51840;
    assert_eq!(config.role, Role::Client { addresses, port });
    let changes = with_key.changes_since(&keyless);
    assert!(changes.fabric.is_empty() && !changes.are_ranks_changed);
    assert!(!changes.is_empty());
}
