//! Tests of updates by changes. They load the programs, so they need root.

use super::*;
use crate::tables::Tables;
use crate::test_run;
use ebpf_common::settings::Settings;
use std::net::Ipv4Addr;

#[test]
fn an_update_by_changes_writes_them_and_keeps_the_rest() {
    let mut maps = maps();
    maps.apply(image(&[1, 2])).unwrap();

    let changes = maps.applied().unwrap();
    let changes = changes.changes(&tables(&[2]), &tables(&[3]), &Settings::default());
    let counts = maps.update(changes.unwrap()).unwrap();

    assert_eq!(
        (counts.inserted, counts.replaced, counts.removed),
        (1, 0, 1)
    );
    assert_eq!(maps.observe().unwrap(), image(&[1, 3]));
    assert_eq!(maps.applied(), Some(&image(&[1, 3])));
    let requesting: BTreeSet<V4> = maps.last_requests.keys().unwrap();
    assert_eq!(requesting, [[10, 0, 0, 1], [10, 0, 0, 3]].into());
}

#[test]
fn after_a_refused_change_the_next_update_makes_the_maps_equal_to_the_tables() {
    let mut maps = maps();
    maps.apply(image(&[1, 2])).unwrap();
    // The kernel refuses to remove an entry that does not exist.
    maps.lose_node(&[10, 0, 0, 2]).unwrap();

    let changes = maps.applied().unwrap();
    let changes = changes.changes(&tables(&[2]), &tables(&[3]), &Settings::default());
    let refused = maps.update(changes.unwrap());

    assert!(matches!(refused, Err(Error::Map { .. })), "{refused:?}");
    assert_eq!(maps.applied(), None, "the contents are unknown");
    maps.apply(image(&[1, 2])).unwrap();
    assert_eq!(maps.observe().unwrap(), image(&[1, 2]));
}

fn maps() -> Maps {
    let mut ebpf = test_run::load(1, Ipv4Addr::UNSPECIFIED, false).unwrap();

    Maps::take(&mut ebpf).unwrap()
}

fn image(nodes: &[u8]) -> Image {
    Image::new(&tables(nodes), &Settings::default()).unwrap()
}

fn tables(nodes: &[u8]) -> Tables {
    Tables {
        nodes: nodes.iter().map(|host| [10, 0, 0, *host].into()).collect(),
        ..Tables::default()
    }
}
