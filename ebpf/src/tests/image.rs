//! Tests of the desired contents of the maps, and of their limits.

use super::fixture::{MSS_2, NODE_1, NODE_2, ip, net, tables};
use crate::error::Error;
use crate::image::Image;
use crate::tables::{Local, Outbound, Tables, Transit};
use ebpf_common::maps::{ENTRIES_MAX, LOCAL_SPREAD, LOCAL_TRANSIT, TunnelKey};
use ebpf_common::settings::Settings;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

fn image(tables: &Tables) -> Result<Image, Error> {
    Image::new(tables, &Settings::default())
}

#[test]
fn a_peers_lowest_segment_size_limits_all_its_prefixes() {
    let mut tables = tables();
    let route = Outbound {
        peer: 2,
        to: net("10.9.0.0/24"),
        mss: 1000,
    };
    tables.outbound.insert(net("10.8.0.0/24"), route);

    let image = image(&tables).unwrap();

    let of_peer_2 = |(key, _): &(&(u32, ebpf_common::maps::PeerAddress), _)| key.1.peer == [0, 2];
    let limits: BTreeSet<_> = (image.inbound.iter())
        .filter(of_peer_2)
        .map(|(_, inbound)| inbound.mss)
        .collect();
    assert_eq!(limits, [1000].into());
    const { assert!(1000 < MSS_2) };
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
