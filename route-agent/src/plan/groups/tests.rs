use super::*;
use crate::state::Route;
use crate::testing::{ip, net};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

#[test]
fn clusters_behind_the_same_replicas_share_a_group() {
    let clusters = [cluster(1, &[1, 2]), cluster(2, &[1, 2]), cluster(3, &[1])];

    let ids = assign(&clusters, &State::default(), &Settings::default());

    assert_eq!(ids, [Some(id(1)), Some(id(1)), Some(id(0))]);
}

#[test]
fn a_cluster_without_replicas_has_no_group() {
    let ids = assign(&[cluster(1, &[])], &State::default(), &Settings::default());

    assert_eq!(ids, [None]);
}

#[test]
fn a_replica_lost_for_all_clusters_changes_no_route() {
    let observed = observed(&[(1, 5, &[1, 2]), (2, 5, &[1, 2])]);

    let ids = assign(
        &[cluster(1, &[1]), cluster(2, &[1])],
        &observed,
        &Settings::default(),
    );

    assert_eq!(ids, [Some(id(5)), Some(id(5))]);
}

#[test]
fn a_cluster_that_alone_loses_a_replica_gets_another_group() {
    let observed = observed(&[(1, 5, &[1, 2]), (2, 5, &[1, 2])]);

    let ids = assign(
        &[cluster(1, &[1, 2]), cluster(2, &[2])],
        &observed,
        &Settings::default(),
    );

    assert_eq!(ids, [Some(id(5)), Some(id(0))]);
}

#[test]
fn the_larger_part_of_a_divided_group_keeps_it() {
    let observed = observed(&[(1, 5, &[1, 2]), (2, 5, &[1, 2]), (3, 5, &[1, 2])]);

    let ids = assign(
        &[cluster(1, &[1]), cluster(2, &[2]), cluster(3, &[2])],
        &observed,
        &Settings::default(),
    );

    assert_eq!(ids, [Some(id(0)), Some(id(5)), Some(id(5))]);
}

proptest! {
    #[test]
    fn groups_and_sets_correspond_one_to_one(
        before in vec((1u8..6, btree_set(1u32..4, 0..4)), 0..6),
        after in vec((1u8..6, btree_set(1u32..4, 0..4)), 0..6),
    ) {
        let settings = Settings::default();
        let sets = |list: &[(u8, BTreeSet<u32>)]| {
            list.iter()
                .map(|(net, members)| Cluster { cidrs: vec![cidr(*net)], members: members.clone() })
                .collect::<Vec<_>>()
        };
        let mut observed = State::default();
        let first = sets(&before);
        for (cluster, id) in first.iter().zip(assign(&first, &observed, &settings)) {
            if let Some(id) = id {
                observed.groups.insert(id, cluster.members.clone());
                observed.routes.insert(cluster.cidrs[0], route(id));
            }
        }

        let clusters = sets(&after);
        let ids = assign(&clusters, &observed, &settings);

        for (a, a_id) in clusters.iter().zip(&ids) {
            prop_assert_eq!(a.members.is_empty(), a_id.is_none());
            for (b, b_id) in clusters.iter().zip(&ids).filter(|(b, _)| !b.members.is_empty()) {
                prop_assert_eq!(a.members == b.members, a_id == b_id);
            }
            if let Some((id, _)) = observed.groups.iter().find(|(_, it)| **it == a.members) {
                prop_assert_eq!(*a_id, Some(*id), "a group that fits is kept");
            }
        }
    }
}

fn cluster(number: u8, members: &[u32]) -> Cluster {
    Cluster {
        cidrs: vec![cidr(number)],
        members: members.iter().copied().collect(),
    }
}

/// Returns a state with a route and a group for each cluster. A tuple contains the cluster's
/// number, the index of its group, and the members of the group.
fn observed(clusters: &[(u8, u32, &[u32])]) -> State {
    let mut state = State::default();
    for (number, place, members) in clusters {
        let members = members.iter().copied().collect();
        state.groups.insert(id(*place), members);
        state.routes.insert(cidr(*number), route(id(*place)));
    }

    state
}

fn route(nexthop: u32) -> Route {
    Route {
        nexthop,
        src: ip("10.70.0.1"),
        mtu_bytes: None,
    }
}

fn cidr(number: u8) -> Ipv4Net {
    net(&format!("10.{number}.0.0/16"))
}

fn id(place: u32) -> u32 {
    Settings::default().nexthop_base + FIRST_GROUP + place
}
