use super::*;
use crate::state::Hop;
use crate::testing::{ip, replica};

#[test]
fn new_replicas_are_numbered_by_address() {
    let replicas = [replica("b", "172.16.0.12"), replica("a", "172.16.0.11")];

    let slots = assign(&replicas, &State::default(), &Settings::default()).unwrap();

    assert_eq!(
        slots,
        BTreeMap::from([(ip("172.16.0.11"), 1), (ip("172.16.0.12"), 2)])
    );
}

#[test]
fn a_replica_keeps_its_slot_and_its_successor_gets_another() {
    let observed = observed(&[(1, "172.16.0.11"), (2, "172.16.0.12")]);
    let replicas = [replica("b", "172.16.0.12"), replica("c", "172.16.0.10")];

    let slots = assign(&replicas, &observed, &Settings::default()).unwrap();

    assert_eq!(
        slots,
        BTreeMap::from([(ip("172.16.0.12"), 2), (ip("172.16.0.10"), 3)])
    );
}

#[test]
fn the_slot_of_a_removed_replica_is_reused_if_no_other_is_left() {
    let old: Vec<_> = (1..=254).map(|n| (n, format!("172.16.0.{n}"))).collect();
    let old: Vec<_> = old
        .iter()
        .map(|(slot, address)| (*slot, address.as_str()))
        .collect();
    let replicas = [replica("new", "172.16.1.1")];

    let slots = assign(&replicas, &observed(&old), &Settings::default()).unwrap();

    assert_eq!(slots, BTreeMap::from([(ip("172.16.1.1"), 1)]));
}

#[test]
fn more_replicas_than_probe_addresses_are_refused() {
    let replicas: Vec<_> = (0..=254u8)
        .map(|n| replica(&format!("gw-{n}"), &format!("172.16.1.{n}")))
        .collect();

    let error = assign(&replicas, &State::default(), &Settings::default()).unwrap_err();

    assert_eq!(error, Error::TooManyReplicas { count: 255 });
}

fn observed(hops: &[(u8, &str)]) -> State {
    let settings = Settings::default();
    State {
        hops: hops
            .iter()
            .map(|(slot, address)| {
                let hop = Hop {
                    dst: ip(address),
                    ..Hop::UNKNOWN
                };
                (settings.hop_id(*slot, PROBES), hop)
            })
            .collect(),
        ..State::default()
    }
}
