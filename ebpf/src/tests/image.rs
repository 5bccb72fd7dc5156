//! Tests of the desired contents of the maps, and of their limits.

use super::fixture::{MSS_2, NODE_1, NODE_2, ip, net, tables};
use crate::error::Error;
use crate::image::Image;
use crate::tables::{Local, Outbound, Tables, Transit};
use ebpf_common::maps::{ENTRIES_MAX, LOCAL_SPREAD, LOCAL_TRANSIT, TunnelKey};
use ebpf_common::settings::Settings;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

fn image(tables: &Tables) -> Result<Image, Error> {
    Image::new(tables, &Settings::default())
}

#[test]
fn the_tunnel_key_of_a_node_is_complete() {
    let image = image(&tables()).unwrap();

    let local = image.local[&(24, [10, 244, 1, 0])];

    let settings = Settings::default();
    let expected = TunnelKey::new(settings.overlay_vni, NODE_1.to_bits());
    assert_eq!(local.key, expected);
}

#[test]
fn a_spread_destination_uses_exactly_its_nodes() {
    let image = image(&tables()).unwrap();

    let local = image.local[&(16, [10, 244, 0, 0])];

    let nodes: BTreeSet<_> = local.spread.into_iter().map(Ipv4Addr::from_bits).collect();
    assert_eq!(local.kind, LOCAL_SPREAD);
    assert_eq!(nodes, [NODE_1, NODE_2].into());
}

#[test]
fn an_ip_object_of_a_remote_pod_selects_the_pods_peer() {
    let mut tables = tables();
    let transit = Transit {
        peer: 2,
        to: ip("10.244.9.9"),
    };
    tables.transit.insert(ip("10.70.0.77"), transit);

    let local = image(&tables).unwrap().local[&(32, [10, 70, 0, 77])];

    assert_eq!(local.kind, LOCAL_TRANSIT);
    assert_eq!(local.to, [10, 244, 9, 9]);
    assert_eq!(local.mss, MSS_2);
}

#[test]
fn a_destination_cannot_be_local_and_remote() {
    let mut tables = tables();
    tables
        .local
        .insert(net("10.70.0.21/32"), Local::Node(NODE_1));

    let error = image(&tables).unwrap_err();

    assert!(matches!(error, Error::AmbiguousDestination { .. }));
}

#[test]
fn more_entries_than_the_maps_hold_are_refused() {
    let mut tables = Tables::default();
    let first = Ipv4Addr::new(172, 18, 0, 0).to_bits();
    let nodes = (0..=ENTRIES_MAX).map(|host| Ipv4Addr::from_bits(first + host));
    tables.nodes = nodes.collect();

    let error = image(&tables).unwrap_err();

    assert_eq!(
        error.to_string(),
        "the table NODES_V4 has 65537 entries, the limit is 65536"
    );
}

#[test]
fn a_change_is_checked_against_the_entries_that_stay() {
    let settings = Settings::default();
    let full = |first: u8| Tables {
        nodes: (0..ENTRIES_MAX)
            .map(|host| Ipv4Addr::from_bits((u32::from(first) << 24) + host))
            .collect(),
        ..Tables::default()
    };
    let before = image(&full(10)).unwrap();
    let (removed, mut added) = (few_nodes(&[[10, 0, 0, 7]]), few_nodes(&[[11, 0, 0, 7]]));
    assert!(before.changes(&removed, &added, &settings).is_ok());
    let more = before.changes(&Tables::default(), &added, &settings);
    assert!(matches!(more, Err(Error::TooMany { .. })));

    let before = image(&tables()).unwrap();
    let same = before.changes(&tables(), &tables(), &settings).unwrap();
    assert_eq!(same.len(), 0);
    added.local = [(net("10.70.0.21/32"), Local::Node(NODE_1))].into();
    let ambiguous = before.changes(&Tables::default(), &added, &settings);
    assert!(matches!(ambiguous, Err(Error::AmbiguousDestination { .. })));
}

fn few_nodes(nodes: &[[u8; 4]]) -> Tables {
    Tables {
        nodes: nodes.iter().map(|node| Ipv4Addr::from(*node)).collect(),
        ..Tables::default()
    }
}

proptest! {
    #[test]
    fn an_updated_image_equals_that_of_the_new_tables(
        states in prop::collection::vec(few_tables(), 1..6)
    ) {
        let settings = Settings::default();
        let mut before = Tables::default();
        let mut updated = Image::default();
        for tables in states {
            let (removed, added) = (affected(&before, &tables), affected(&tables, &before));
            let changes = updated.changes(&removed, &added, &settings).unwrap();
            let complete = image(&tables).unwrap();
            if tables.spread == before.spread {
                let local = updated.changes_to(&complete).local;
                prop_assert_eq!(&changes.local, &local, "unchanged entries are not written");
            }
            updated.apply(changes);

            prop_assert_eq!(&updated, &complete);
            before = tables;
        }
    }
}

/// Generates consistent tables with few keys, so that two of them often have the same ones.
fn few_tables() -> impl Strategy<Value = Tables> {
    let few = || prop::collection::btree_set(0..4_u8, 0..4);
    let spread = prop::collection::btree_set(0..6_u8, 1..5);
    let local = prop::collection::btree_map(0..4_u8, prop::option::of(0..3_u8), 0..4);
    let by_peer = prop::collection::btree_map(0..4_u8, 0..2_u16, 0..4);
    let mss = (1200..1202_u16, 1200..1202_u16);
    let parts = (spread, local, few(), by_peer.clone(), by_peer, few(), mss);
    parts.prop_map(|(spread, local, services, transit, prefixes, nodes, mss)| {
        let address = |third, host| Ipv4Addr::new(10, 70, third, host);
        let node = |host| Ipv4Addr::new(172, 18, 0, host);
        let prefix = |second, third| net(&format!("10.{second}.{third}.0/24"));
        let mut tables = Tables {
            local: (local.into_iter())
                .map(|(host, of)| {
                    let local = of.map_or(Local::Spread, |of| Local::Node(node(of)));
                    (address(0, host).into(), local)
                })
                .collect(),
            services: (services.iter())
                .map(|host| (address(1, *host), Ipv4Addr::new(10, 96, 0, 7 - host)))
                .collect(),
            sources: services.iter().map(|third| prefix(244, *third)).collect(),
            spread: spread.into_iter().map(node).collect(),
            nodes: nodes.into_iter().map(node).collect(),
            mss: [(0, mss.0), (1, mss.1)].into(),
            ..Tables::default()
        };
        for (host, peer) in transit {
            let to = Ipv4Addr::new(10, 244, 0, host);
            tables
                .transit
                .insert(address(2, host), Transit { peer, to });
            tables.transit_sources.insert((peer, to), address(2, host));
        }
        for (third, peer) in prefixes {
            let (from, to) = (prefix(244, third), prefix(245, third));
            tables.outbound.insert(to, Outbound { peer, to: from });
            tables.inbound.insert((peer, from), to);
            tables.unknown_sources.insert(peer, to.network());
        }
        tables
    })
}

/// Returns the entries of `of` that `other` lacks or has with another value.
fn affected(of: &Tables, other: &Tables) -> Tables {
    let is_limited = |peer: u16| of.mss.get(&peer) != other.mss.get(&peer);

    Tables {
        outbound: changed(&of.outbound, &other.outbound, |_, it| is_limited(it.peer)),
        inbound: changed(&of.inbound, &other.inbound, |key, _| is_limited(key.0)),
        local: changed(&of.local, &other.local, |_, _| false),
        transit: changed(&of.transit, &other.transit, |_, it| is_limited(it.peer)),
        transit_sources: changed(&of.transit_sources, &other.transit_sources, |_, _| false),
        unknown_sources: changed(&of.unknown_sources, &other.unknown_sources, |_, _| false),
        services: changed(&of.services, &other.services, |_, _| false),
        sources: of.sources.difference(&other.sources).copied().collect(),
        nodes: of.nodes.difference(&other.nodes).copied().collect(),
        spread: of.spread.difference(&other.spread).copied().collect(),
        mss: of.mss.clone(),
    }
}

fn changed<K: Ord + Copy, V: PartialEq + Copy>(
    of: &BTreeMap<K, V>,
    other: &BTreeMap<K, V>,
    is_affected: impl Fn(&K, &V) -> bool,
) -> BTreeMap<K, V> {
    (of.iter())
        .filter(|(key, value)| is_affected(key, value) || other.get(*key) != Some(*value))
        .map(|(key, value)| (*key, *value))
        .collect()
}
